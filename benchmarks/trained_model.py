"""Search strategies on a trained recommender and real held-out items, as the paper's Table 3. Markdown.

python benchmarks/trained_model.py runs/ml-1m/hstu-mol/model --data data/ml-1m

Hit rates are those of the test items (the last of each user; items of the history are excluded), relative to those of
brute force. Times are of batches of 32 queries; strategies take turns in one run.
"""

import argparse
from pathlib import Path

from strategy_table import describe_gate, print_strategies

from railsearch import Index, MixtureOfLogits
from railsearch.benchmark.machine import describe_machine
from railsearch.data import leave_last_out, read_prepared
from railsearch.index import parse_strategies
from railsearch.models import histories_between
from railsearch.recommender import Recommender

DEPTHS = (1, 5, 10, 50, 100, 200)
DEFAULT = (
    "TwoPass PerComponent(5) PerComponent(50) Average(200) Average(500) Average(1000) Combined(5,200) Combined(50,500)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder that railsearch data prepare wrote")
    parser.add_argument("--strategies", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()

    interactions = read_prepared(options.data)
    recommender = Recommender.load(options.model, interactions=interactions)
    split = leave_last_out(interactions, has_validation=recommender.recipe.split.has_validation)
    model = recommender.model
    users, ends = split.test.users, split.test.history_ends
    starts = interactions.offsets[users]  # (B,)
    histories = histories_between(interactions, starts, ends, max_length=model.encoder.max_length)
    query_parts = model.query_parts(histories, users)
    seen = [interactions.items[first:end] for first, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    index = Index.build(model.similarity, model.encoder.embed_items().detach(), show_progress=False)

    print(f"{describe_machine()}; {len(index)} items, {len(users)} test users; {split.protocol}\n")
    print_strategies(
        index,
        query_parts,
        list(split.test.items[:, None]),
        parse_strategies(options.strategies),
        depths=DEPTHS,
        repeats=options.repeats,
        exclude=seen,
    )
    if isinstance(model.similarity, MixtureOfLogits):
        describe_gate(model.similarity, query_parts, model.item_parts()[split.test.items[:, None]])


if __name__ == "__main__":
    main()
