"""Who met what, when: interactions in the order of time, with ids mapped to rows and kept."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.errors import InvalidInputError
from railsearch.inputs import check_count

if TYPE_CHECKING:
    from polars import DataFrame, Series

logger = logging.getLogger(__name__)

SHOWN_ROWS = 5
"""Bad rows that an error names one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Interactions of users with items, user by user, each user's in the order of time.

    Events of a user at the same time stay in the order they were given in.
    """

    users: Tensor  # (E,) row of each event's user in `user_ids`, ascending
    items: Tensor  # (E,) row of its item in `item_ids`
    timestamps: Tensor  # (E,) int64: seconds, or positions where there was no time
    ratings: Tensor | None  # (E,)
    user_ids: "Series"  # (U,) as they were given
    item_ids: "Series"  # (N,) as they were given, with those of the catalogue that nobody met
    source: str
    bad_rows: tuple[str, ...] = ()
    """What was wrong with rows that were left out, where that was allowed."""

    @classmethod
    def from_frame(
        cls,
        table: object,
        *,
        user: str = "user",
        item: str = "item",
        timestamp: str | None = "timestamp",
        rating: str | None = None,
        catalogue: object = None,
        max_bad_rows: int = 0,
        source: str = "a table",
    ) -> "Interactions":
        """Take interactions from a table: a polars DataFrame, or anything that speaks Arrow.

        Args:
            table: one row an event.
            user: the column of users, of any type.
            item: the column of items, of any type.
            timestamp: the column of times, whole seconds or dates; None where rows are in order already.
            rating: a column of numbers to keep along.
            catalogue: ids of all items that can be recommended; those that nobody met are candidates too.
            max_bad_rows: rows without a user, an item or a time that are left out and reported; with more, the
                reading stops. None is left out by default.
            source: what messages call the table.
        """
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        if not isinstance(table, pl.DataFrame) and not hasattr(table, "__arrow_c_stream__"):
            raise InvalidInputError(f"{source} is a {type(table).__name__}; give a table that speaks Arrow.")
        frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
        names = {"user": user, "item": item, "timestamp": timestamp, "rating": rating}
        for name in names.values():
            if name is not None and name not in frame.columns:
                raise InvalidInputError(
                    f"{source} has no column {name!r}; its columns are: {', '.join(frame.columns)}."
                )
        known = frame.select(pl.col(name).alias(role) for role, name in names.items() if name is not None)
        if timestamp is None:
            known = known.with_columns(timestamp=pl.int_range(pl.len()))
        known = known.with_columns(timestamp=_seconds(known["timestamp"]))
        if "line" in frame.columns:
            known = known.with_columns(place=pl.format("line {}", frame["line"]))
        else:
            known = known.with_columns(place=pl.format("row {}", pl.int_range(pl.len())))
        kept, bad_rows = _without_bad_rows(known, check_count(max_bad_rows, name="max_bad_rows", minimum=0), source)
        return _assemble(kept, catalogue, source, bad_rows)

    @property
    def offsets(self) -> Tensor:
        """Where each user's events begin (U + 1,); the last value is the number of events."""
        counts = torch.bincount(self.users, minlength=self.num_users)  # (U,)
        return torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])

    def items_table(self) -> "DataFrame":
        """One row an item, in the order of their rows: its id in the column `item`."""
        return self.item_ids.to_frame("item")

    @property
    def num_users(self) -> int:
        """How many users there are."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """How many items can be recommended."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"Interactions({len(self):,} of {self.num_users:,} users with {self.num_items:,} items, {self.source})"


def read_lines(path: str | Path, *, separator: str, columns: list[str], has_header: bool = False) -> "DataFrame":
    """Read a text file with one event a line, as text, with the number of each line; nothing is dropped or guessed.

    Lines that have too few or too many fields get nothing in any of them, so that they are reported as bad.
    """
    import polars as pl  # noqa: PLC0415

    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(f"{file} does not exist; give the folder of the original files.")
    try:
        content = file.read_bytes()
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # the older MovieLens files
    lines = pl.Series("text", text.split("\n"), dtype=pl.String).str.strip_suffix("\r")
    frame = pl.DataFrame({"line": range(1, len(lines) + 1), "text": lines})
    frame = frame[int(has_header) :].filter(pl.col("text").str.strip_chars() != "")
    fields = pl.col("text").str.split(separator)
    is_whole = fields.list.len() == len(columns)
    return frame.select(
        "line",
        *(
            pl.when(is_whole).then(fields.list.get(place, null_on_oob=True)).alias(name)
            for place, name in enumerate(columns)
        ),
    )


def _seconds(column: "Series") -> "Series":
    """Times as whole seconds; null where there is none."""
    import polars as pl  # noqa: PLC0415

    if column.dtype.is_temporal():
        return column.cast(pl.Datetime("us")).dt.epoch("s")
    if column.dtype.is_float():
        return column.fill_nan(None).floor().cast(pl.Int64, strict=False)
    return column.cast(pl.Int64, strict=False)


def _without_bad_rows(known: "DataFrame", max_bad_rows: int, source: str) -> "tuple[DataFrame, tuple[str, ...]]":
    """Leave out rows that lack what is needed, if there are few enough of them."""
    import polars as pl  # noqa: PLC0415

    is_bad = pl.any_horizontal(pl.col("user", "item", "timestamp").is_null())
    bad = known.filter(is_bad)
    if not len(bad):
        return known, ()
    reports = tuple(
        f"{row['place']}: no {' or '.join(name for name in ('user', 'item', 'timestamp') if row[name] is None)}"
        for row in bad.iter_rows(named=True)
    )
    shown = "; ".join(reports[:SHOWN_ROWS]) + ("; ..." if len(reports) > SHOWN_ROWS else "")
    if len(bad) > max_bad_rows:
        raise InvalidInputError(
            f"{source} has {len(bad)} bad rows of {len(known)} but at most {max_bad_rows} are allowed ({shown}); "
            "repair them, or raise max_bad_rows to leave them out."
        )
    logger.warning("%s: %d bad rows were left out (%s)", source, len(bad), shown)
    return known.filter(~is_bad), reports


def _assemble(known: "DataFrame", catalogue: object, source: str, bad_rows: tuple[str, ...]) -> Interactions:
    import polars as pl  # noqa: PLC0415

    if not len(known):
        raise InvalidInputError(f"{source} has no events; give at least one.")
    user_ids = known["user"].unique().sort()
    item_ids = known["item"].unique()
    if catalogue is not None:
        given = pl.Series("item", catalogue)  # type: ignore[arg-type]
        try:
            item_ids = pl.concat([item_ids, given.cast(item_ids.dtype)]).unique()
        except pl.exceptions.PolarsError as error:
            raise InvalidInputError(
                f"catalogue holds {given.dtype} ids but events hold {item_ids.dtype} ones; give one type."
            ) from error
    item_ids = item_ids.sort()
    rows = known.with_columns(user=_rows_of(known["user"], user_ids), item=_rows_of(known["item"], item_ids)).sort(
        "user", "timestamp", maintain_order=True
    )
    ratings = None
    if "rating" in rows.columns:
        ratings = torch.from_numpy(rows["rating"].cast(pl.Float32, strict=False).to_numpy(writable=True))
    return Interactions(
        users=torch.from_numpy(rows["user"].to_numpy(writable=True)),
        items=torch.from_numpy(rows["item"].to_numpy(writable=True)),
        timestamps=torch.from_numpy(rows["timestamp"].to_numpy(writable=True)),
        ratings=ratings,
        user_ids=user_ids.alias("user"),
        item_ids=item_ids.alias("item"),
        source=source,
        bad_rows=bad_rows,
    )


def _rows_of(values: "Series", ids: "Series") -> "Series":
    """The row of each value among sorted ids."""
    import polars as pl  # noqa: PLC0415

    return ids.search_sorted(values).cast(pl.Int64)
