"""Small worlds of random interactions: there is no pattern to learn, only events to memorise or count."""

from collections.abc import Callable

import polars as pl
import torch

from railsearch.data import Interactions
from railsearch.recommender import Recipe

Naming = Callable[[int], object]


def random_walks(
    *,
    num_users: int = 50,
    num_items: int = 40,
    lengths: tuple[int, int] = (5, 12),
    user_name: Naming = int,
    item_name: Naming = int,
    seed: int = 0,
) -> Interactions:
    """Return users who meet items at random, sometimes the same one twice; every item is a candidate."""
    generator = torch.Generator().manual_seed(seed)
    events = []
    for user in range(num_users):
        length = int(torch.randint(lengths[0], lengths[1] + 1, (), generator=generator))
        items = torch.randint(num_items, (length,), generator=generator).tolist()
        gaps = torch.randint(1, 10**5, (length,), generator=generator).cumsum(dim=0).tolist()
        events += [(user_name(user), item_name(item), 10**9 + gap) for item, gap in zip(items, gaps, strict=True)]
    table = pl.DataFrame(events, schema=["user", "item", "timestamp"], orient="row")
    return Interactions.from_frame(table, catalogue=[item_name(item) for item in range(num_items)])


ENCODERS = {
    "sasrec": {"kind": "sasrec", "num_blocks": 2, "max_length": 8, "dropout": 0.0},
    "hstu": {
        "kind": "hstu", "num_blocks": 2, "num_heads": 2, "head_dim": 8, "max_length": 8, "dropout": 0.0,
    },
}  # fmt: skip
MIXTURE = {
    "kind": "mixture_of_logits", "num_query_components": 3, "num_item_components": 2, "component_dim": 16,
    "projection_dim": 32, "gate_dim": 16, "item_dropout": 0.0, "gate_dropout": 0.0, "user_dropout": 0.0,
}  # fmt: skip
SIMILARITIES = {"cosine": {"kind": "cosine"}, "mixture": MIXTURE, "mixture-user": {**MIXTURE, "user_table_size": 50}}


def small_recipe(encoder: str = "sasrec", similarity: str = "mixture", *, dim: int = 16, **training: object) -> Recipe:
    """Return the recipe of a recommender that trains in a second or two, without dropout."""
    settings = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01, "num_negatives": 16} | training
    return Recipe(encoder={**ENCODERS[encoder], "dim": dim}, similarity=SIMILARITIES[similarity], training=settings)
