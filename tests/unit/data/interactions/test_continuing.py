"""Events under the rows of a model: compared with ids looked up one by one."""

import polars as pl
import pytest
import torch

from railsearch.data import HeldOut, Interactions, Split, continue_rows, continue_split, leave_last_out
from railsearch.errors import InvalidInputError
from tests.support.training_worlds import random_walks

ITEMS = pl.DataFrame({"item": [7, 3, 100, 12], "title": ["seven", "three", "hundred", "twelve"]})


def events_by_id(interactions: Interactions) -> dict[object, list[tuple[object, int]]]:
    """Return the events of each user, in order, with original ids."""
    found: dict[object, list[tuple[object, int]]] = {}
    for user, item, time in zip(
        interactions.users.tolist(), interactions.items.tolist(), interactions.timestamps.tolist(), strict=True
    ):
        found.setdefault(interactions.user_ids[user], []).append((interactions.item_ids[item], time))
    return found


def held_out_by_id(split: Split, held_out: HeldOut | None) -> set[tuple[object, object, int]]:
    """Return user, item and number of events before it, for each held-out item."""
    assert held_out is not None
    events = split.interactions
    starts = events.offsets[held_out.users]
    return {
        (events.user_ids[user], events.item_ids[item], end - start)
        for user, item, end, start in zip(
            held_out.users.tolist(),
            held_out.items.tolist(),
            held_out.history_ends.tolist(),
            starts.tolist(),
            strict=True,
        )
    }


def test_known_ids_keep_their_rows_and_new_ones_follow() -> None:
    world = random_walks(num_users=30, num_items=20)
    users = pl.Series("user", [40, 3, 29, 1, 41])
    moved = continue_rows(world, items=ITEMS, user_ids=users)
    assert moved.item_ids.to_list() == [7, 3, 100, 12, *(item for item in range(20) if item not in (7, 3, 12))]
    assert moved.user_ids.to_list() == [40, 3, 29, 1, 41, *(user for user in range(30) if user not in (3, 29, 1))]
    assert events_by_id(moved) == events_by_id(world)
    assert moved.users.tolist() == sorted(moved.users.tolist())


def test_users_stay_as_they_are_without_a_user_table() -> None:
    world = random_walks(num_users=6)
    moved = continue_rows(world, items=ITEMS)
    assert moved.user_ids is world.user_ids
    assert moved.users is world.users


def test_a_split_moves_with_its_events() -> None:
    world = random_walks(num_users=30, num_items=20, lengths=(1, 6))
    split = leave_last_out(world)
    moved = continue_split(split, continue_rows(world, items=ITEMS, user_ids=pl.Series([40, 3, 29, 1, 41])))
    for name in ("validation", "test"):
        assert held_out_by_id(moved, getattr(moved, name)) == held_out_by_id(split, getattr(split, name))
    assert moved.num_train_events == split.num_train_events
    assert moved.num_target_events == split.num_target_events
    again = leave_last_out(moved.interactions)
    assert torch.equal(moved.train_ends, again.train_ends)
    assert "1 items of the model without events are ranked too" in moved.protocol


def test_columns_of_items_come_from_the_data_or_else_from_the_model() -> None:
    table = pl.DataFrame({"user": [1, 1], "item": [3, 5], "timestamp": [1, 2]})
    catalogue = pl.DataFrame({"item": [3, 5, 12], "title": ["THREE", "five", None], "year": [1, 2, 3]})
    moved = continue_rows(Interactions.from_frame(table, catalogue=catalogue), items=ITEMS)
    assert moved.items_table().to_dict(as_series=False) == {
        "item": [7, 3, 100, 12, 5],
        "title": ["seven", "THREE", "hundred", "twelve", "five"],
        "year": [None, 1, None, 3, 2],
    }
    plain = continue_rows(Interactions.from_frame(table), items=ITEMS)
    assert plain.items_table()["title"].to_list() == ["seven", "three", "hundred", "twelve", None]
    assert continue_rows(Interactions.from_frame(table), items=ITEMS.select("item")).item_columns is None


def test_ids_of_another_type_are_converted_if_nothing_is_lost() -> None:
    table = pl.DataFrame({"user": [1, 1], "item": ["3", "5"], "timestamp": [1, 2]})
    assert continue_rows(Interactions.from_frame(table), items=ITEMS).item_ids.to_list() == [7, 3, 100, 12, 5]
    numbers = table.with_columns(pl.col("item").cast(pl.Int16))
    assert continue_rows(Interactions.from_frame(numbers), items=ITEMS).items.tolist() == [1, 4]
    for other in ("007", "A5"):
        strange = table.with_columns(item=pl.Series(["3", other]))
        with pytest.raises(InvalidInputError, match=rf"item ids of the model are Int64 but the data has '{other}'"):
            continue_rows(Interactions.from_frame(strange), items=ITEMS)


def test_a_column_of_another_type_is_refused() -> None:
    table = pl.DataFrame({"user": [1], "item": [3], "timestamp": [1]})
    catalogue = pl.DataFrame({"item": [3], "title": [[1, 2]]})
    with pytest.raises(InvalidInputError, match=r"column 'title' of the items holds .* but the model has String"):
        continue_rows(Interactions.from_frame(table, catalogue=catalogue), items=ITEMS)
