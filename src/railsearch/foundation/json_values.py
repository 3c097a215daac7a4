"""Rows of a table as JSON values: bytes as base64, dates as ISO text, NaN and infinity as null."""

import base64
import datetime as dt
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from polars import DataFrame

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def rows_as_json(frame: "DataFrame") -> list[dict[str, JsonValue]]:
    """Return the rows of a table with every value as a JSON value.

    >>> import polars as pl
    >>> rows_as_json(pl.DataFrame({"blob": [b"hi"], "price": [float("nan")], "tags": [["a"]]}))
    [{'blob': 'aGk=', 'price': None, 'tags': ['a']}]
    """
    return [{name: as_json_value(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]


def as_json_value(value: object) -> JsonValue:
    """Return a value of a table as a JSON value."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
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
