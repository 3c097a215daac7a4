"""Training since a time: targets and held-out items are later, compared with a loop over events."""

import datetime as dt

import polars as pl
import pytest

from railsearch.data import Interactions, leave_last_out, train_since
from railsearch.data.interactions.since import as_seconds
from railsearch.errors import InvalidInputError
from tests.support.training_worlds import random_walks


@pytest.mark.parametrize("has_validation", [True, False])
def test_targets_and_held_out_items_are_later(has_validation: bool) -> None:
    world = random_walks()
    time = int(world.timestamps.median())
    split = leave_last_out(world, has_validation=has_validation)
    late = train_since(split, time)
    expected = [
        row
        for user, (first, end) in enumerate(zip(world.offsets[:-1].tolist(), split.train_ends.tolist(), strict=True))
        for row in range(first + 1, end)
        if world.timestamps[row] > time and world.users[row] == user
    ]
    found = [
        row
        for first, end in zip(late.first_targets.tolist(), late.train_ends.tolist(), strict=True)
        for row in range(first, end)
    ]
    assert found == expected
    assert late.num_target_events == len(expected)
    assert late.num_train_events == split.num_train_events
    for name in ("validation", "test") if has_validation else ("test",):
        whole, kept = getattr(split, name), getattr(late, name)
        assert kept.history_ends.tolist() == [
            row for row in whole.history_ends.tolist() if world.timestamps[row] > time
        ]
        assert kept.items.tolist() == world.items[kept.history_ends].tolist()
    assert late.protocol.startswith(split.protocol)
    assert f"trained on the {len(expected)} events after 2001-" in late.protocol


def test_times_in_every_form() -> None:
    second = 975_657_600  # 2000-12-01T08:00:00Z
    forms = [
        second, float(second) + 0.5, str(second), "2000-12-01T08:00:00", "2000-12-01 08:00",
        "2000-12-01T10:00:00+02:00", dt.datetime(2000, 12, 1, 8, tzinfo=dt.UTC),
        dt.datetime(2000, 12, 1, 8),  # noqa: DTZ001
    ]  # fmt: skip
    assert {as_seconds(form) for form in forms} == {second}
    assert as_seconds(dt.date(2000, 12, 1)) == as_seconds("2000-12-01") == second - 8 * 3600
    for wrong in ("yesterday", "", True, None, [1], 10**15, float("nan")):
        with pytest.raises(InvalidInputError, match=r"since is .*; give seconds or an ISO date"):
            as_seconds(wrong)  # type: ignore[arg-type]


def test_a_time_without_events_is_refused() -> None:
    world = random_walks()
    split = leave_last_out(world)
    last = int(world.timestamps.max())
    with pytest.raises(InvalidInputError, match=r"no event is later than since, .*: the last one is at 2001-.*Z; give"):
        train_since(split, last)
    with pytest.raises(InvalidInputError, match=r"none of the 1 events after .* is left to train on"):
        train_since(split, last - 1)
    table = pl.DataFrame({"user": [1] * 4, "item": [1, 2, 3, 4]})
    without = Interactions.from_frame(table, timestamp=None, source="clicks.csv")
    with pytest.raises(InvalidInputError, match=r"since is 3 but clicks\.csv has no times; prepare the data with"):
        train_since(leave_last_out(without), 3)
