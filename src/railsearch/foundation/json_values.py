"""Rows of a table as JSON values: bytes as base64, dates as ISO text, integers of 128 bits as text, NaN as null."""

import base64
import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame, Schema

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def rows_as_json(frame: "DataFrame") -> list[dict[str, JsonValue]]:
    """Return the rows of a table with every value as a JSON value.

    >>> import polars as pl
    >>> rows_as_json(pl.DataFrame({"blob": [b"hi"], "price": [float("nan")], "tags": [["a"]]}))
    [{'blob': 'aGk=', 'price': None, 'tags': ['a']}]
    """
    return [{name: as_json_value(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]


def rows_from_json(rows: Sequence[Mapping[str, object]], schema: "Schema") -> "DataFrame":
    """Return JSON objects as a table of this schema: the reverse of `rows_as_json`, except for bytes and Int128.

    Dates and times are ISO text, and integers may stand for floats. Other conversions are refused, and so are objects
    with other names.

    >>> import polars as pl
    >>> rows_from_json([{"day": "2024-01-31", "price": 7}], pl.Schema({"day": pl.Date, "price": pl.Float64})).rows()
    [(datetime.date(2024, 1, 31), 7.0)]
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    for number, row in enumerate(rows):
        if row.keys() != schema.keys():
            raise InvalidInputError(
                f"metadata[{number}] has the names {', '.join(map(repr, row)) or 'none'} but the index has "
                f"{', '.join(map(repr, schema))}; give one value for each."
            )
    columns = []
    for name, kind in schema.items():
        values = [row[name] for row in rows]
        try:
            if kind.is_temporal():
                columns.append(pl.Series(name, values, dtype=pl.String, strict=True).str.strptime(kind, strict=True))  # type: ignore[arg-type]
            elif kind.is_float():
                _check_numbers(values)
                columns.append(pl.Series(name, values, dtype=pl.Float64, strict=False).cast(kind))
            else:
                if kind.is_integer():
                    _check_numbers(values)
                columns.append(pl.Series(name, values, dtype=kind, strict=True))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError, OverflowError) as error:
            cause = " ".join(str(error).split())
            raise InvalidInputError(
                f"metadata has a value in {name!r} that is not of type {kind} ({cause:.200}); give such values."
            ) from None
    return pl.DataFrame(columns)


def _check_numbers(values: Iterable[object]) -> None:
    """Refuse what polars would turn into a number, or into null without a word."""
    for value in values:
        if value is not None and type(value) not in (int, float):
            raise TypeError(f"{value!r:.80} is not a number")


def as_json_value(value: object) -> JsonValue:
    """Return a value of a table as a JSON value."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)  # the most that writers and readers of JSON agree on has 64 bits
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): as_json_value(part) for name, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [as_json_value(part) for part in value]
    return _as_text(value)


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else str(value)
