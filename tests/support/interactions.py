"""Interactions in a form that tests can compare."""

import torch
from polars.testing import assert_frame_equal, assert_series_equal

from railsearch.data import Interactions


def histories(interactions: Interactions) -> dict[object, list[object]]:
    """Return each user's items in order, by their own ids."""
    result: dict[object, list[object]] = {user: [] for user in interactions.user_ids}
    for user, item in zip(interactions.users.tolist(), interactions.items.tolist(), strict=True):
        result[interactions.user_ids[user]].append(interactions.item_ids[item])
    return result


def assert_same(found: Interactions, expected: Interactions) -> None:
    for name in ("users", "items", "timestamps"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert (found.ratings is None) == (expected.ratings is None)
    if found.ratings is not None:
        assert torch.equal(found.ratings, expected.ratings)
    for name in ("user_ids", "item_ids"):
        assert_series_equal(getattr(found, name), getattr(expected, name))
    assert (found.item_columns is None) == (expected.item_columns is None)
    if found.item_columns is not None:
        assert_frame_equal(found.item_columns, expected.item_columns)
    for name in ("source", "bad_rows", "has_times"):
        assert getattr(found, name) == getattr(expected, name), name
