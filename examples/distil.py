"""Distil a gradient-boosted ranker: a mixture learns to rank as it does, and can be searched.

pip install scikit-learn
python examples/distil.py

Boosted trees score one user and one item at a time, from features of both. They can rank a hundred candidates, but not
search a million items. A mixture that follows their scores can be indexed, and is searched with a certificate.
"""

import os

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from railsearch import Index, MixtureOfLogits, fit_similarity

EPOCHS = int(os.environ.get("EPOCHS", "20"))
NUM_USERS, NUM_ITEMS, DIM = 1100, 500, 8
draw = np.random.default_rng(0)
users = draw.normal(size=(NUM_USERS, DIM)).astype("float32")  # your features of users: age, country, tastes
items = draw.normal(size=(NUM_ITEMS, DIM)).astype("float32")  # your features of items: price, genre, quality

# 1. Logged feedback: somebody likes an item for its best side, which no dot product expresses.
user_rows, item_rows = draw.integers(NUM_USERS, size=20_000), draw.integers(NUM_ITEMS, size=20_000)
sides = (users[user_rows] * items[item_rows]).reshape(-1, 2, DIM // 2).sum(axis=2)  # (events, 2)
liked = sides.max(axis=1) + 0.3 * draw.normal(size=20_000)


# 2. The ranker that you have.
def features(user_rows: np.ndarray, item_rows: np.ndarray) -> np.ndarray:
    """Return what the ranker sees of each user and item."""
    return np.concatenate([users[user_rows], items[item_rows], users[user_rows] * items[item_rows]], axis=1)


trees = HistGradientBoostingRegressor(max_iter=100, random_state=0).fit(features(user_rows, item_rows), liked)


def ranker(user_rows: np.ndarray, item_rows: np.ndarray) -> np.ndarray:
    """Score each user with one item."""
    return trees.predict(features(user_rows, item_rows))


# 3. Distil: the ranker is asked about some candidates of each user, once, before training. No labels are needed.
student = MixtureOfLogits(
    query_dim=DIM, item_dim=DIM, num_query_components=2, num_item_components=2, component_dim=8, seed=0
)
train_users = 1000
fit_similarity(student, users[:train_users], items, teacher=ranker, epochs=EPOCHS, batch_size=32, learning_rate=1e-2)

# 4. Compare on users that the student has never seen: how many of the ranker's ten best items does a search find?
index = Index.build(student, items)
result = index.search(users[train_users:], k=10)
agreement = []
for user, ids in zip(range(train_users, NUM_USERS), result.ids.tolist(), strict=True):
    scores = ranker(np.full(NUM_ITEMS, user), np.arange(NUM_ITEMS))
    agreement.append(len(set(ids) & set(np.argsort(-scores)[:10].tolist())) / 10)
print(f"a search finds {np.mean(agreement):.0%} of the ranker's ten best; by chance it would be {10 / NUM_ITEMS:.0%}")
print(f"exact: {bool(result.is_exact.all())}")
