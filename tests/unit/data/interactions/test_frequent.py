"""Users and items with enough events, against a plain count."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from railsearch.data import Interactions, keep_frequent
from railsearch.errors import InvalidInputError
from tests.support.interactions import histories


def test_against_a_plain_count() -> None:
    rng = np.random.default_rng(0)
    rows = list(zip(rng.integers(0, 40, 300).tolist(), rng.integers(0, 60, 300).tolist(), strict=True))
    table = pl.DataFrame(rows, schema=["user", "item"], orient="row").with_columns(rating=pl.int_range(pl.len()))
    titles = pl.DataFrame({"item": range(80), "title": [f"item {number}" for number in range(80)]})
    interactions = Interactions.from_frame(table, timestamp=None, rating="rating", catalogue=titles)
    users, items = Counter(user for user, _ in rows), Counter(item for _, item in rows)
    dense = [(row, *pair) for row, pair in enumerate(rows) if users[pair[0]] >= 6 and items[pair[1]] >= 6]
    left = Counter(user for _, user, _ in dense)
    expected = [event for event in dense if left[event[1]] >= 6]
    assert 0 < len(expected) < len(dense) < len(rows)

    found = keep_frequent(interactions, min_count=6)
    assert sorted(found.ratings.tolist()) == [row for row, _, _ in expected]
    assert histories(found) == {
        user: [item for _, other, item in expected if other == user]
        for user in sorted({user for _, user, _ in expected})
    }
    # Items that only those users met who went last are candidates still, as in the published preprocessing.
    assert found.item_ids.to_list() == sorted({item for _, _, item in dense})
    assert found.item_columns["title"].to_list() == [f"item {item}" for item in found.item_ids]


def test_wrong_counts() -> None:
    interactions = Interactions.from_frame(pl.DataFrame({"user": [1, 1], "item": [1, 2]}), timestamp=None)
    assert len(keep_frequent(interactions, min_count=1)) == 2
    with pytest.raises(InvalidInputError, match="no user of a table has 2 events with items that have as many"):
        keep_frequent(interactions, min_count=2)
    with pytest.raises(InvalidInputError, match="min_count is 0"):
        keep_frequent(interactions, min_count=0)
