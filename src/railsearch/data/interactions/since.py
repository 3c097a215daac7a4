"""Training on late events only: earlier events remain the histories, but are no targets."""

import dataclasses
import datetime as dt

import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.data.interactions.columns import TimeUnit, read_times
from railsearch.data.interactions.splits import HeldOut, Split
from railsearch.foundation.errors import InvalidInputError

Time = TypeAliasType("Time", int | float | str | dt.date | dt.datetime)


def train_since(split: Split, since: Time) -> Split:
    """Return a split whose training targets and held-out items are all later than a time.

    Events up to that time remain part of the histories. Held-out items up to that time do not count in any figure: a
    model that was trained before may have been trained on them.

    Args:
        split: a split of interactions that have times.
        since: seconds, a date, or text with either, such as "2000-12-01" or "2000-12-01T08:00:00"; UTC without a zone.

    >>> import polars as pl
    >>> from railsearch.data import Interactions, leave_last_out
    >>> events = pl.DataFrame({"user": [1] * 5, "item": [3, 4, 5, 6, 7], "timestamp": [1, 2, 3, 4, 5]})
    >>> split = train_since(leave_last_out(Interactions.from_frame(events)), 2)
    >>> split.num_target_events, split.num_train_events
    (1, 3)
    """
    interactions = split.interactions
    second = as_seconds(since)
    if not interactions.has_times:
        raise InvalidInputError(
            f"since is {since!r} but {interactions.source} has no times; prepare the data with a column of times, or "
            "omit since."
        )
    is_late = interactions.timestamps > second  # (E,)
    if not bool(is_late.any()):
        raise InvalidInputError(
            f"no event is later than since, {as_date(second)}: the last one is at "
            f"{as_date(int(interactions.timestamps.max()))}; give an earlier time, or data with newer events."
        )
    num_early = torch.bincount(interactions.users[~is_late], minlength=interactions.num_users)  # (U,)
    starts = interactions.offsets[:-1] + num_early  # (U,)
    if split.train_starts is not None:
        starts = torch.maximum(starts, split.train_starts)
    late = dataclasses.replace(
        split,
        train_starts=starts,
        validation=None if split.validation is None else _later(split.validation, is_late),
        test=_later(split.test, is_late),
    )
    _check(late, second, int(is_late.sum()))
    counts = f"{len(late.test.items):,} for test"
    if late.validation is not None:
        counts = f"{len(late.validation.items):,} for validation, {counts}"
    return dataclasses.replace(
        late,
        protocol=f"{split.protocol}; trained on the {late.num_target_events:,} events after {as_date(second)} that are "
        f"not held out, with earlier events as histories; only held-out items after that time count: {counts}",
    )


def as_seconds(time: Time, *, name: str = "since") -> int:
    """Return a time in whole seconds, rounded down; text is read as in a column of times.

    >>> as_seconds("2000-12-01"), as_seconds(975628800)
    (975628800, 975628800)
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    try:
        seconds = None if isinstance(time, bool) else read_times(pl.Series(name, [time]), TimeUnit.SECONDS).seconds[0]
    except (InvalidInputError, OverflowError, TypeError, pl.exceptions.PolarsError):
        seconds = None
    if seconds is None:
        raise InvalidInputError(f"{name} is {time!r}; give seconds or an ISO date, such as 2000-12-01T08:00:00.")
    return int(seconds)


def as_date(second: int) -> str:
    """Return a second as a date in UTC, or as a number if its year is beyond those of a date."""
    try:
        return dt.datetime.fromtimestamp(second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(second)


def _later(held_out: HeldOut, is_late: Tensor) -> HeldOut:
    rows = is_late[held_out.history_ends]  # (n,)
    return HeldOut(held_out.users[rows], held_out.items[rows], held_out.history_ends[rows])


def _check(split: Split, second: int, num_late: int) -> None:
    """Check that there is something to train on, to validate with and to test with."""
    empty = {
        "to train on": split.num_target_events,
        "for validation": 1 if split.validation is None else len(split.validation.items),
        "for the test": len(split.test.items),
    }
    for purpose, count in empty.items():
        if not count:
            raise InvalidInputError(
                f"none of the {num_late:,} events after {as_date(second)} is left {purpose}: the last items of each "
                "user are held out; give an earlier time or more events, or set split.has_validation=false."
            )
