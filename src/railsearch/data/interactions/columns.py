"""Read columns of ids, times and ratings; values that cannot be read become null, and `why_not` explains them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import Series

LATEST_SECOND = 10**11
"""A second in the year 5138. Larger numbers are not in seconds."""
SHOWN_CHARACTERS = 40
DECIMAL = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
DATE_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z")


class TimeUnit(StrEnum):
    """Unit of numeric times."""

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
    """Times of events."""

    seconds: "Series"
    """Whole seconds; null if the time is missing or impossible."""
    exact: "Series"
    """Times in the precision of the input, to sort by."""


def read_ids(column: "Series", *, are_whole: bool = False) -> "Series":
    """Return ids in the type of the input, or as whole numbers; empty ids become null."""
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
    """Return ratings as finite numbers."""
    import polars as pl  # noqa: PLC0415

    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Null)):
        raise InvalidInputError(f"column {column.name!r} holds {column.dtype}; give numbers as ratings.")
    return _finite(_trimmed(column).cast(pl.Float32, strict=False))


def read_times(column: "Series", unit: TimeUnit) -> Times:
    """Return times from numbers or dates; text is read as numbers or as ISO dates, as its first value is."""
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
    """Return for each value that could not be read that it is missing, or what is wrong with it."""
    import polars as pl  # noqa: PLC0415

    text = given.cast(pl.String).str.strip_chars()
    is_absent = text.is_null() | text.is_in(["", "NaN"])
    unreadable = pl.format(f"{role} '{{}}' is {needed}", text.str.slice(0, SHOWN_CHARACTERS))
    return pl.select(pl.when(is_absent).then(pl.lit(f"no {role}")).otherwise(unreadable)).to_series()


def as_numbers_where_lossless(*columns: "Series") -> "list[Series]":
    """Return text as whole numbers if every value is written as one: 7, but not 007, which may be another id."""
    import polars as pl  # noqa: PLC0415

    numbers = [column.cast(pl.Int64, strict=False) for column in columns]
    for column, number in zip(columns, numbers, strict=True):
        is_same = number.cast(pl.String).eq_missing(column) | (column.str.strip_chars() == "").fill_null(value=False)
        if not is_same.all():
            return list(columns)
    return numbers


def read_text_column(column: "Series") -> "Series":
    """Return a column of a text file as whole numbers or decimals if every value is written as one, else as text.

    Empty values become null. 007 is text, and so is every value beside it.
    """
    import polars as pl  # noqa: PLC0415

    values = column.set((column.str.strip_chars() == "").fill_null(value=False), None)
    whole = as_numbers_where_lossless(values)[0]
    if whole.dtype != pl.String:
        return whole
    is_decimal = values.str.contains(DECIMAL).fill_null(value=True)
    return values.cast(pl.Float64) if is_decimal.all() else values


def rows_of(values: "Series", ids: "Series") -> "Series":
    """Return the row of each value among unique ids."""
    import polars as pl  # noqa: PLC0415

    # Hashing finds text among millions of ids several times faster than a binary search.
    rows = pl.DataFrame({"id": ids, "row": pl.int_range(len(ids), eager=True)})
    return pl.DataFrame({"id": values}).join(rows, on="id", how="left", maintain_order="left")["row"]


def _trimmed(column: "Series") -> "Series":
    import polars as pl  # noqa: PLC0415

    return column.str.strip_chars() if column.dtype == pl.String else column


def _finite(numbers: "Series") -> "Series":
    return numbers.set(~numbers.is_finite(), None)


def _numbers(text: "Series") -> "Series":
    """Return whole numbers if all are whole, so that none is rounded."""
    import polars as pl  # noqa: PLC0415

    whole, broken = text.cast(pl.Int64, strict=False), text.cast(pl.Float64, strict=False)
    return whole if whole.null_count() == broken.null_count() else broken


def _dates(text: "Series") -> "Series":
    """Return dates and times of ISO 8601; those without a zone are in UTC."""
    import polars as pl  # noqa: PLC0415

    plain = text.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
    found = (plain.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False) for form in DATE_FORMATS)
    return pl.select(pl.coalesce(*(dates.alias(str(place)) for place, dates in enumerate(found)))).to_series()
