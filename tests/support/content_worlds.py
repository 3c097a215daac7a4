"""A small world in which the content of items says what comes next: users stay with items of one kind."""

import polars as pl
import torch

from railsearch.data import Interactions
from railsearch.recommender import Recipe
from tests.support.training_worlds import ENCODERS, SIMILARITIES, Naming

NUM_ITEMS = 40
NUM_KINDS = 4
COLUMN = "content"


def content_items(*, item_name: Naming = int, num_items: int = NUM_ITEMS) -> pl.DataFrame:
    """Return items whose content is the kind that they are of, `row % 4`, with noise; they have titles too."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.arange(num_items) % NUM_KINDS
    content = torch.eye(NUM_KINDS)[kinds] + 0.1 * torch.randn(num_items, NUM_KINDS, generator=generator)
    return pl.DataFrame(
        {
            "item": [item_name(item) for item in range(num_items)],
            "title": [f"title {item}" for item in range(num_items)],
            COLUMN: content.tolist(),
        }
    )


def content_events(items: pl.DataFrame, *, num_users: int = 60, length: int = 8) -> Interactions:
    """Return users who meet only items of one kind, in random order."""
    generator = torch.Generator().manual_seed(1)
    events = []
    for user in range(num_users):
        own = [row for row in range(len(items)) if row % NUM_KINDS == user % NUM_KINDS]
        order = torch.randperm(len(own), generator=generator).tolist()[:length]
        events += [(user, items["item"][own[place]], time) for time, place in enumerate(order)]
    table = pl.DataFrame(events, schema=["user", "item", "timestamp"], orient="row")
    return Interactions.from_frame(table, catalogue=items)


def content_recipe(
    encoder: str = "sasrec", similarity: str = "cosine", *, epochs: int = 2, **options: object
) -> Recipe:
    """Return a recipe that reads the content of items."""
    settings = {"item_features": COLUMN, **options}
    return Recipe(
        encoder={**ENCODERS[encoder], "dim": 16, **settings},
        similarity=SIMILARITIES[similarity],
        training={"epochs": epochs, "batch_size": 16, "learning_rate": 0.01, "num_negatives": 16},
    )
