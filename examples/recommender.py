"""A recommender from a CSV file: read events, measure two simple systems, train a mixture, recommend.

python examples/recommender.py

Replace the two files with your own: one row for each event (who, what, when), and one row for each product. The files
here describe an invented shop (`examples/data/make_shop.py`).
"""

import os
import tempfile
from pathlib import Path

from railsearch import Recommender
from railsearch.baselines import ItemKNN, Popularity
from railsearch.data import read_interactions
from railsearch.recipes import MixtureConfig, Recipe, SASRecConfig, TrainingConfig

DATA = Path(__file__).parent / "data"
EPOCHS = int(os.environ.get("EPOCHS", "20"))

# 1. Read. Ids stay your own, times may be dates, bad rows are reported by line.
events = read_interactions(
    DATA / "events.csv", user="customer", item="product", timestamp="when", items=DATA / "products.csv"
)
print(events)

# 2. Two systems that need no training. Whatever you train has to beat them.
systems = {"popularity": Popularity.fit(events).evaluate(events), "ItemKNN": ItemKNN.fit(events).evaluate(events)}

# 3. Train. Each customer's last event is held out for the test, the one before it picks the epoch.
recipe = Recipe(
    encoder=SASRecConfig(dim=32, num_blocks=2, num_heads=2, max_length=20),
    similarity=MixtureConfig(num_query_components=4, num_item_components=2, gate_dim=32),  # starts as a cosine
    training=TrainingConfig(epochs=EPOCHS, batch_size=32, learning_rate=0.005),
)
recommender = Recommender.fit(events, recipe)
systems["mixture"] = recommender.evaluate(events)
for name, measured in systems.items():
    for metric in ("HR@1", "HR@10"):
        interval = measured.intervals[metric]
        print(f"{name:10}  {metric:5} {measured.metrics[metric]:.3f} ({interval.low:.3f} to {interval.high:.3f})")
print(measured.protocol)  # with so few events, ItemKNN is hard to beat, and leads at HR@1: look at the intervals

# 4. Recommend: for a customer in the data, and for a visitor of whom only the clicks are known.
titles = recommender.items.select("item", "title", "interest")
print(recommender.recommend(["c001"], k=3).join(titles, on="item").sort("rank"))
visitor = ["che-00", "che-01", "bak-05"]
print(recommender.recommend(histories=[visitor], k=3, allow="interest = 'chess'").join(titles, on="item").sort("rank"))

# 5. Keep: a folder with the model, and one with the index that `railsearch serve` answers from.
folder = Path(tempfile.mkdtemp(prefix="railsearch-"))  # a new one for each run; yours has a name
recommender.save(folder / "shop-model")
index = recommender.build_index(folder / "shop.index")
result = recommender.search([visitor], k=5)
print(f"{len(index)} products in shop.index; the answer is exact: {bool(result.is_exact.all())}")
print(f"next: railsearch serve {folder / 'shop.index'} --model {folder / 'shop-model'}")
