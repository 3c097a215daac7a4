"""Filter for users and items with few events, as in the preprocessing of the paper's Books data."""

import dataclasses

import torch
from torch import Tensor

from railsearch.data.interactions.interactions import Interactions
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count


def keep_frequent(interactions: Interactions, *, min_count: int) -> Interactions:
    """Keep events of users and of items that have at least `min_count` events.

    Events are counted once: an item that loses events of rare users is kept. Afterwards, users with fewer than
    `min_count` remaining events are dropped; items that only these users have stay candidates.

    >>> import polars as pl
    >>> events = {"user": [1, 1, 1, 2, 2, 3], "item": [5, 6, 7, 5, 6, 5]}
    >>> kept = keep_frequent(Interactions.from_frame(pl.DataFrame(events), timestamp=None), min_count=2)
    >>> kept.user_ids.to_list(), kept.item_ids.to_list(), len(kept)
    ([1, 2], [5, 6], 4)
    """
    check_count(min_count, name="min_count")
    user_counts = torch.bincount(interactions.users)  # (U,)
    item_counts = torch.bincount(interactions.items, minlength=interactions.num_items)  # (N,)
    is_kept = (user_counts[interactions.users] >= min_count) & (item_counts[interactions.items] >= min_count)  # (E,)
    items, item_rows = _renumbered(interactions.items[is_kept], interactions.num_items)
    left = torch.bincount(interactions.users[is_kept], minlength=interactions.num_users)  # (U,)
    is_long = left[interactions.users[is_kept]] >= min_count  # (E',)
    if not is_long.any():
        raise InvalidInputError(
            f"no user of {interactions.source} has {min_count} events with items that have as many; ask for a smaller "
            "min_count."
        )
    events = is_kept.nonzero().flatten()[is_long]  # (E'',)
    users, user_rows = _renumbered(interactions.users[events], interactions.num_users)
    columns = interactions.item_columns
    return dataclasses.replace(
        interactions,
        users=users,
        items=items[is_long],
        timestamps=interactions.timestamps[events],
        ratings=None if interactions.ratings is None else interactions.ratings[events],
        user_ids=interactions.user_ids.gather(user_rows.numpy()),
        item_ids=interactions.item_ids.gather(item_rows.numpy()),
        item_columns=None if columns is None else columns[item_rows.numpy()],
    )


def _renumbered(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return rows renumbered without gaps, and the old row of each new one."""
    is_used = torch.zeros(count, dtype=torch.bool).index_fill(0, rows, value=True)  # (count,)
    return (is_used.cumsum(dim=0) - 1)[rows], is_used.nonzero().flatten()
