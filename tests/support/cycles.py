"""A small world of interactions that can be learned: every user walks around a ring of items."""

import polars as pl

from railsearch.data import Interactions


def cycles(*, num_users: int = 50, num_items: int = 40, length: int = 12) -> Interactions:
    """Return users who walk on by 3 items at a time, each from a different start."""
    events = [
        (user, (7 * user + 3 * place) % num_items, 100 * user + place)
        for user in range(num_users)
        for place in range(length)
    ]
    return Interactions.from_frame(pl.DataFrame(events, schema=["user", "item", "timestamp"], orient="row"))
