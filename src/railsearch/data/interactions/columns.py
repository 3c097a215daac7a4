"""From columns as they were given to ids, times and ratings; what cannot be read is null, and `why_not` says why."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import Series

LATEST_SECOND = 10**11
"""In the year 5138. Numbers that are greater do not count seconds."""
SHOWN_CHARACTERS = 40
DATE_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z")


class TimeUnit(StrEnum):
    """What times that are numbers count."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


PER_SECOND = {
    TimeUnit.SECONDS: 1,
    TimeUnit.MILLISECONDS: 10**3,
    TimeUnit.MICROSECONDS: 10**6,
    TimeUnit.NANOSECONDS: 10**9,
}


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """When events were."""

    seconds: "Series"
    """Whole ones; null where there is no time or none that can be."""
    exact: "Series"
    """As finely as it was given, to sort by."""


def read_ids(column: "Series", *, are_whole: bool = False) -> "Series":
    """Ids as they were given, or as whole numbers; none is empty."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    if column.dtype.is_nested() or column.dtype == pl.Object:
        raise InvalidInputError(f"column {column.name!r} holds {column.dtype}; give numbers or text as ids.")
    if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
        column = column.cast(pl.String)
    if column.dtype == pl.String:
        column = column.set(column.str.strip_chars() == "", None)
    elif column.dtype.is_float():
        column = column.fill_nan(None)
    return column.cast(pl.Int64, strict=False) if are_whole else column


def read_ratings(column: "Series") -> "Series":
    """Ratings as finite numbers."""
    import polars as pl  # noqa: PLC0415

    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Null)):
        raise InvalidInputError(f"column {column.name!r} holds {column.dtype}; give numbers as ratings.")
    return _finite(_trimmed(column).cast(pl.Float32, strict=False))


def read_times(column: "Series", unit: TimeUnit) -> Times:
    """Times of numbers or dates; text is numbers or ISO dates, whichever its first value is."""
    import polars as pl  # noqa: PLC0415

    values, per_second = _trimmed(column), PER_SECOND[unit]
    if values.dtype == pl.String:
        first = values.filter(values != "").head(1)
        values = _numbers(values) if first.cast(pl.Float64, strict=False).count() else _dates(values)
    if isinstance(values.dtype, pl.Date):
        values = values.cast(pl.Datetime("us"))
    if isinstance(values.dtype, pl.Datetime):
        per_second, exact = PER_SECOND[TimeUnit(values.dtype.time_unit)], values.to_physical()
    elif values.dtype.is_integer():
        exact = values.cast(pl.Int64, strict=False)
    elif values.dtype.is_numeric() or values.dtype == pl.Null:
        exact = _finite(values.cast(pl.Float64))
    else:
        raise InvalidInputError(f"column {column.name!r} holds {column.dtype}; give numbers or dates as times.")
    seconds = exact // per_second
    seconds = seconds.set(seconds.abs() > LATEST_SECOND, None).cast(pl.Int64)
    return Times(seconds, exact)


def why_not(given: "Series", role: str, needed: str) -> "Series":
    """Say for values that could not be read whether there was none, or one that cannot be read."""
    import polars as pl  # noqa: PLC0415

    text = given.cast(pl.String).str.strip_chars()
    is_absent = text.is_null() | text.is_in(["", "NaN"])
    unreadable = pl.format(f"{role} '{{}}' is {needed}", text.str.slice(0, SHOWN_CHARACTERS))
    return pl.select(pl.when(is_absent).then(pl.lit(f"no {role}")).otherwise(unreadable)).to_series()


def as_numbers_where_lossless(*columns: "Series") -> "list[Series]":
    """Text as whole numbers, if all of it is written as numbers are: 7 and not 007, which may be another id."""
    import polars as pl  # noqa: PLC0415

    numbers = [column.cast(pl.Int64, strict=False) for column in columns]
    for column, number in zip(columns, numbers, strict=True):
        is_same = number.cast(pl.String).eq_missing(column) | (column.str.strip_chars() == "").fill_null(value=False)
        if not is_same.all():
            return list(columns)
    return numbers


def rows_of(values: "Series", ids: "Series") -> "Series":
    """The row of each value among ids, none of which is there twice."""
    import polars as pl  # noqa: PLC0415

    # Hashing finds text in millions of ids several times as fast as a binary search does.
    rows = pl.DataFrame({"id": ids, "row": pl.int_range(len(ids), eager=True)})
    return pl.DataFrame({"id": values}).join(rows, on="id", how="left", maintain_order="left")["row"]


def _trimmed(column: "Series") -> "Series":
    import polars as pl  # noqa: PLC0415

    return column.str.strip_chars() if column.dtype == pl.String else column


def _finite(numbers: "Series") -> "Series":
    return numbers.set(~numbers.is_finite(), None)


def _numbers(text: "Series") -> "Series":
    """Whole numbers where all of them are, so that none is rounded."""
    import polars as pl  # noqa: PLC0415

    whole, broken = text.cast(pl.Int64, strict=False), text.cast(pl.Float64, strict=False)
    return whole if whole.null_count() == broken.null_count() else broken


def _dates(text: "Series") -> "Series":
    """Dates and times of ISO 8601; those without a zone are in UTC."""
    import polars as pl  # noqa: PLC0415

    plain = text.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
    found = (plain.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False) for form in DATE_FORMATS)
    return pl.select(pl.coalesce(*(dates.alias(str(place)) for place, dates in enumerate(found)))).to_series()
