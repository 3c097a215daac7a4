"""Interactions of users with items, sorted by user and time, with ids mapped to rows."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.data.interactions.columns import Times, TimeUnit, read_ids, read_ratings, read_times, rows_of, why_not
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrowTable, as_choice, check_count

if TYPE_CHECKING:
    from polars import DataFrame, Series

logger = logging.getLogger(__name__)

Catalogue = TypeAliasType("Catalogue", ArrowTable | Iterable[int] | Iterable[str])
SHOWN_ROWS = 5
"""Number of bad rows that an error shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Interactions of users with items, sorted by user and then by time.

    Events of one user at the same time keep the order of the input.
    """

    users: Tensor  # (E,) row of each event's user in `user_ids`, ascending
    items: Tensor  # (E,) row of its item in `item_ids`
    timestamps: Tensor  # (E,) int64: seconds, or positions if there are no times
    ratings: Tensor | None  # (E,)
    user_ids: "Series"  # (U,) in the type of the input
    item_ids: "Series"  # (N,) in the type of the input, including items of the catalogue without events
    source: str
    bad_rows: tuple[str, ...] = ()
    """Reason for each row that was skipped."""
    item_columns: "DataFrame | None" = None
    """Other columns of the items, such as titles: one row for each item, in the order of `item_ids`."""
    has_times: bool = True
    """True if `timestamps` are seconds, False if they are positions."""

    @classmethod
    def from_frame(
        cls,
        table: ArrowTable,
        *,
        user: str = "user",
        item: str = "item",
        timestamp: str | None = "timestamp",
        rating: str | None = None,
        time_unit: str = TimeUnit.SECONDS,
        catalogue: Catalogue | None = None,
        max_bad_rows: int = 0,
        source: str = "a table",
    ) -> "Interactions":
        """Build interactions from a table: a polars DataFrame, or any table with an Arrow interface.

        Args:
            table: one row for each event.
            user: column of the users, numbers or text.
            item: column of the items, numbers or text.
            timestamp: column of the times, numbers or dates; None if the rows are already sorted by time.
            rating: column of ratings to keep.
            time_unit: unit of numeric times: s, ms, us or ns.
            catalogue: ids of all items that can be recommended, or a table of them with a column `item`. Other
                columns, such as titles, are kept. Items without events are candidates too.
            max_bad_rows: skip and report up to this many rows in which a user, an item, a time or a rating is missing
                or cannot be read; with more, an error is raised.
            source: name of the table in messages.
        """
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        if not isinstance(table, pl.DataFrame) and not hasattr(table, "__arrow_c_stream__"):
            raise InvalidInputError(f"{source} is a {type(table).__name__}; give a table with an Arrow interface.")
        frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
        names = {"user": user, "item": item, "timestamp": timestamp, "rating": rating}
        check_columns(frame.columns, names, source)
        return assemble(
            as_given(frame, names),
            catalogue=catalogue,
            catalogue_column=item,
            time_unit=time_unit,
            max_bad_rows=max_bad_rows,
            source=source,
        )

    @property
    def offsets(self) -> Tensor:
        """Index of each user's first event (U + 1,); the last value is the number of events."""
        counts = torch.bincount(self.users, minlength=self.num_users)  # (U,)
        return torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])

    def items_table(self) -> "DataFrame":
        """Return a table with one row for each item: its id in the column `item`, and its other columns."""
        ids = self.item_ids.to_frame("item")
        if self.item_columns is None:
            return ids
        return ids.hstack([column for column in self.item_columns if column.name != "item"])

    @property
    def num_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Number of items that can be recommended."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"Interactions({len(self):,} of {self.num_users:,} users with {self.num_items:,} items, {self.source})"


def check_columns(columns: Sequence[str], names: Mapping[str, str | None], source: str) -> None:
    """Check that a table has the named columns."""
    for role, name in names.items():
        if name is not None and name not in columns:
            remedy = "; pass timestamp=None if the rows are already sorted by time" if role == "timestamp" else ""
            raise InvalidInputError(f"{source} has no column {name!r}; its columns are: {', '.join(columns)}{remedy}.")


def as_given(frame: "DataFrame", names: Mapping[str, str | None]) -> "DataFrame":
    """Return the columns under the names of their roles, with the number of each row."""
    import polars as pl  # noqa: PLC0415

    roles = frame.select(pl.col(name).alias(role) for role, name in names.items() if name is not None)
    return roles.with_row_index("row")


def assemble(
    given: "DataFrame",
    *,
    catalogue: Catalogue | None = None,
    catalogue_column: str = "item",
    time_unit: str = TimeUnit.SECONDS,
    are_whole_ids: bool = False,
    max_bad_rows: int = 0,
    source: str,
) -> Interactions:
    """Build interactions from columns of the input.

    Args:
        given: the columns user and item, and timestamp and rating if there are any; row or line, which reports name;
            and problem, the reason why a row is empty.
        catalogue: ids of all items, or a table of them.
        catalogue_column: column of the ids in that table.
        time_unit: unit of numeric times.
        are_whole_ids: require ids to be whole numbers.
        max_bad_rows: raise an error if there are more bad rows.
        source: name of the table in messages.
    """
    import polars as pl  # noqa: PLC0415

    unit = as_choice(TimeUnit, time_unit, name="time_unit")
    check_count(max_bad_rows, name="max_bad_rows", minimum=0)
    has_times = "timestamp" in given.columns
    positions = pl.int_range(len(given), eager=True)
    times = read_times(given["timestamp"], unit) if has_times else Times(positions, positions)
    read = pl.DataFrame(
        {
            "user": read_ids(given["user"], are_whole=are_whole_ids),
            "item": read_ids(given["item"], are_whole=are_whole_ids),
            "timestamp": times.seconds,
            "exact": times.exact,
        }
    )
    if "rating" in given.columns:
        read = read.with_columns(rating=read_ratings(given["rating"]))
    is_good = read.select(pl.all_horizontal(pl.exclude("exact").is_not_null())).to_series()
    bad_rows = _reports(given.filter(~is_good), read.filter(~is_good), unit)
    _check_few_enough(bad_rows, len(given), max_bad_rows, source)
    events = read.filter(is_good)
    if not len(events):
        raise InvalidInputError(f"{source} has no events; give at least one.")
    user_ids = events["user"].unique().sort()
    item_ids, item_columns = _candidates(events["item"], catalogue, catalogue_column, source)
    rows = events.with_columns(
        user=rows_of(events["user"], user_ids), item=rows_of(events["item"].cast(item_ids.dtype), item_ids)
    ).sort("user", "exact", maintain_order=True)
    return Interactions(
        users=torch.from_numpy(rows["user"].to_numpy(writable=True)),
        items=torch.from_numpy(rows["item"].to_numpy(writable=True)),
        timestamps=torch.from_numpy(rows["timestamp"].to_numpy(writable=True)),
        ratings=torch.from_numpy(rows["rating"].to_numpy(writable=True)) if "rating" in rows.columns else None,
        user_ids=user_ids.alias("user"),
        item_ids=item_ids.alias("item"),
        source=source,
        bad_rows=bad_rows,
        item_columns=item_columns,
        has_times=has_times,
    )


def _reports(given: "DataFrame", read: "DataFrame", unit: TimeUnit) -> tuple[str, ...]:
    """Return the reason for each bad row."""
    import polars as pl  # noqa: PLC0415

    needed = {
        "user": "not a whole number",
        "item": "not a whole number",
        "timestamp": "not a number or ISO date",
        "rating": "not a number",
    }
    reasons = []
    for role in (role for role in needed if role in given.columns):
        reason = why_not(given[role], role, needed[role])
        if role == "timestamp":
            late = why_not(given[role], role, f"beyond the year 5138 in {unit}; set the unit with time_unit=UNIT")
            reason = reason.zip_with(read["exact"].is_null(), late)
        reasons.append(reason.zip_with(read[role].is_null(), pl.Series([None], dtype=pl.String)).alias(role))
    text = pl.concat_str(reasons, separator=", ", ignore_nulls=True)
    if "problem" in given.columns:
        text = pl.coalesce(given["problem"], text)
    place = "line" if "line" in given.columns else "row"
    return tuple(given.select(pl.format(f"{place} {{}}: {{}}", place, text)).to_series())


def _check_few_enough(bad_rows: tuple[str, ...], num_rows: int, max_bad_rows: int, source: str) -> None:
    if not bad_rows:
        return
    shown = "; ".join(bad_rows[:SHOWN_ROWS]) + ("; ..." if len(bad_rows) > SHOWN_ROWS else "")
    if len(bad_rows) > max_bad_rows:
        raise InvalidInputError(
            f"{source} has {len(bad_rows)} bad rows of {num_rows} but at most {max_bad_rows} are allowed ({shown}); "
            "repair them, or skip them with max_bad_rows=N."
        )
    logger.warning("%s: %d bad rows were skipped (%s)", source, len(bad_rows), shown)


def _candidates(
    met: "Series", catalogue: Catalogue | None, column: str, source: str
) -> "tuple[Series, DataFrame | None]":
    """Return the ids of all items, sorted, and their columns in the catalogue."""
    import polars as pl  # noqa: PLC0415

    if catalogue is None:
        return met.unique().sort(), None
    is_table = hasattr(catalogue, "columns") and hasattr(catalogue, "__arrow_c_stream__")
    table = pl.DataFrame(catalogue) if is_table else None
    if table is not None and column not in table.columns:
        raise InvalidInputError(
            f"the catalogue of {source} has no column {column!r}; its columns are: {', '.join(table.columns)}."
        )
    if table is not None and column != "item" and "item" in table.columns:
        raise InvalidInputError(
            f"the catalogue of {source} has ids in {column!r}, and another column 'item'; rename or drop that column."
        )
    known = read_ids(table[column] if table is not None else pl.Series("item", catalogue))
    if known.null_count():
        raise InvalidInputError(
            f"the catalogue of {source} has no id in row {known.is_null().arg_true()[0]}; give one."
        )
    if known.dtype != met.dtype:
        if not (known.dtype.is_integer() and met.dtype.is_integer()):
            raise InvalidInputError(
                f"catalogue holds {known.dtype} ids but events hold {met.dtype} ones; give one type."
            )
        known, met = known.cast(pl.Int64), met.cast(pl.Int64)
    item_ids = pl.concat([met.alias("item"), known.alias("item")]).unique().sort()
    if table is None or table.width == 1:
        return item_ids, None
    others = table.drop(column).with_columns(known.alias("item"))
    if known.is_duplicated().any():
        twice = known.filter(known.is_duplicated())[0]
        raise InvalidInputError(f"the catalogue of {source} holds {twice!r} more than once; give every item one row.")
    joined = item_ids.to_frame().join(others, on="item", how="left", maintain_order="left").drop("item")
    return item_ids, joined
