"""Metadata of items, such as titles, years and prices: stored with the items, returned with results, and filtered."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
import xxhash
from torch import Tensor

from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.index.conditions import compile_condition

if TYPE_CHECKING:
    from polars import DataFrame, Expr, Series

KEY = "id"
"""The column of string ids, if the index has them."""
RESERVED = ("query", "rank", KEY, "score")
"""Names of the columns that every table of results has."""
UNITS_PER_DAY = {"ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
FIRST_DAY = -719_162
"""Days from 1970 to the first day of year 1."""
LAST_DAY = 2_932_896
"""Days from 1970 to the last day of year 9999."""


@dataclass(frozen=True, slots=True, eq=False)
class _ArrowFile:
    """An Arrow file in memory, and the number of rows that it must have."""

    content: "np.ndarray[tuple[int], np.dtype[np.uint8]]"  # (bytes,)
    path: Path
    num_rows: int
    has_keys: bool
    checksum: str | None
    """The checksum that its bytes must have; None if they were checked before."""

    def read(self) -> "DataFrame":
        """Read the table; compare its header with the expected rows first: a small file can unpack to many rows."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        content = self.content.tobytes()
        if self.checksum is not None and xxhash.xxh3_128_hexdigest(content) != self.checksum:
            raise IndexFolderError(f"{self.path} is damaged: its checksum does not match; restore it from a copy.")
        try:
            num_rows = pl.scan_ipc(io.BytesIO(content)).select(pl.len()).collect().item()
            if num_rows != self.num_rows:
                raise IndexFolderError(
                    f"{self.path} has {num_rows} rows but its segment has {self.num_rows}; restore it from a copy."
                )
            frame = pl.read_ipc(content)
            self._check_columns(frame)
            return frame
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise IndexFolderError(f"{self.path} cannot be read ({error}); restore it from a copy.") from error

    def _check_columns(self, frame: "DataFrame") -> None:
        import polars as pl  # noqa: PLC0415

        wrong = [name for name in RESERVED if name in frame.columns and (name != KEY or not self.has_keys)]
        if wrong:
            raise IndexFolderError(f"{self.path} has a column {wrong[0]!r} that it must not have; restore it.")
        if not self.has_keys:
            return
        keys = frame[KEY] if KEY in frame.columns else pl.Series(KEY, [], dtype=pl.String)
        if keys.dtype != pl.String or len(keys) != self.num_rows or keys.null_count() or not keys.is_unique().all():
            raise IndexFolderError(
                f"{self.path} must have a different string id in every row of column {KEY!r}, but it has not; restore "
                "it from a copy."
            )


class Metadata:
    """The metadata of one segment's items: a table, or a mapped Arrow file that is read when it is first needed.

    The file is mapped immediately, so that it can still be read after the cleanup of its version.
    """

    def __init__(self, source: "DataFrame | _ArrowFile") -> None:
        self._source = source
        self._rows: dict[str, int] | None = None
        self.path = source.path if isinstance(source, _ArrowFile) else None
        """The file that the table is read from, if any."""

    @classmethod
    def from_file(
        cls,
        content: "np.ndarray[tuple[int], np.dtype[np.uint8]]",
        *,
        path: Path,
        num_rows: int,
        has_keys: bool,
        checksum: str | None = None,
    ) -> Self:
        """Take the content of an Arrow file that must have `num_rows` rows, with or without string ids.

        With a checksum, the content is checked when it is read.
        """
        return cls(_ArrowFile(content, path, num_rows, has_keys, checksum))

    @property
    def frame(self) -> "DataFrame":
        """The table, one row for each item."""
        source = self._source  # read once: another thread may replace it
        if isinstance(source, _ArrowFile):
            source = self._source = source.read()
        return source

    @property
    def has_keys(self) -> bool:
        """Whether a column holds string ids; does not read the table."""
        source = self._source
        return source.has_keys if isinstance(source, _ArrowFile) else KEY in source.columns

    def keys_of(self, rows: Tensor) -> list[str]:
        """Return the string ids of some rows (n,)."""
        return self.frame[KEY].gather(rows.cpu().numpy()).to_list()

    def rows_of_keys(self, keys: Sequence[str]) -> Tensor:
        """Return the row of each string id (n,); -1 if there is none. The first call builds a lookup in memory."""
        if self._rows is None:
            self._rows = {key: row for row, key in enumerate(self.frame[KEY])}
        return torch.tensor([self._rows.get(key, -1) for key in keys], dtype=torch.int64)

    def of_rows(self, rows: Tensor) -> "DataFrame":
        """Return the table of some rows (n,), in their order."""
        return self.frame[rows.cpu().numpy()]

    def write(self, path: Path) -> None:
        """Write an Arrow file."""
        content = io.BytesIO()  # polars reports a full disk in its own way
        self.frame.write_ipc(content, compression="zstd")
        path.write_bytes(content.getbuffer())


def stack(tables: "Sequence[DataFrame]") -> "DataFrame | None":
    """Stack tables, with the columns in the order of the first; return None if there are none."""
    joined = None
    for table in tables:
        joined = table if joined is None else joined.vstack(table.select(joined.columns))
    return joined


def as_metadata(table: object, *, count: int) -> Metadata:
    """Check a table with one row for each of `count` items: a polars DataFrame, or any with an Arrow interface."""
    import polars as pl  # noqa: PLC0415

    if not isinstance(table, pl.DataFrame) and not hasattr(table, "__arrow_c_stream__"):
        raise InvalidInputError(
            f"metadata is a {type(table).__name__}; give a polars DataFrame or a table with an Arrow interface."
        )
    try:
        frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
    except (pl.exceptions.PolarsError, TypeError, ValueError, ImportError) as error:
        raise InvalidInputError(f"metadata cannot be read as a table ({error}); give a polars DataFrame.") from error
    if len(frame) != count:
        raise InvalidInputError(
            f"metadata has {len(frame)} rows but there are {count} items; give one row for each item."
        )
    taken = [name for name in frame.columns if name in RESERVED]
    if taken:
        raise InvalidInputError(
            f"metadata has a column {taken[0]!r}, which every table of results has ({', '.join(RESERVED)}); rename it."
        )
    objects = [name for name, kind in frame.schema.items() if kind == pl.Object]
    if objects:
        raise InvalidInputError(
            f"metadata has a column {objects[0]!r} of Python objects, which cannot be stored; give text or numbers."
        )
    for name in frame.columns:
        _check_dates(frame[name], name)
    return Metadata(frame.rechunk())


def _check_dates(column: "Series", name: str) -> None:
    """Refuse dates outside the years 1 to 9999, also within lists: polars panics when it prints them."""
    import polars as pl  # noqa: PLC0415

    kind = column.dtype
    if isinstance(kind, (pl.List, pl.Array)):
        _check_dates(column.explode(), name)
    elif isinstance(kind, pl.Struct):
        for field in kind.fields:
            _check_dates(column.struct.field(field.name), name)
    elif isinstance(kind, (pl.Date, pl.Datetime, pl.Duration)):
        per_day = 1 if isinstance(kind, pl.Date) else UNITS_PER_DAY[kind.time_unit]
        days = column.to_physical() // per_day
        if not days.is_between(FIRST_DAY, LAST_DAY).all():  # missing values are ignored
            raise InvalidInputError(
                f"metadata has a value in column {name!r} ({kind}) outside the years 1 to 9999; correct or drop it."
            )


def with_keys(metadata: Metadata | None, keys: list[str]) -> Metadata:
    """Return metadata with a first column of string ids."""
    import polars as pl  # noqa: PLC0415

    column = pl.Series(KEY, keys, dtype=pl.String)
    return Metadata(column.to_frame() if metadata is None else metadata.frame.clone().insert_column(0, column))


def without_keys(frame: "DataFrame | None") -> "DataFrame | None":
    """Return the columns that a user gave; None if there are none."""
    given = None if frame is None else frame.drop(KEY, strict=False)
    return given if given is not None and given.width else None


def fit_columns(given: Metadata | None, known: Metadata | None) -> Metadata | None:
    """Check that items have the known columns, and return them in the known order."""
    found = None if given is None else dict(given.frame.schema)
    wanted = None if known is None else dict(known.frame.schema)
    if found != wanted:
        raise InvalidInputError(
            f"metadata has {_described(found)} but the index has {_described(wanted)}; give the same columns and types."
        )
    if given is None or known is None or given.frame.columns == known.frame.columns:
        return given
    return Metadata(given.frame.select(known.frame.columns))


def evaluate_filter(allow: "str | Expr", frame: "DataFrame | None", rows: Tensor) -> Tensor:
    """Return whether each of the rows (n,) of a table satisfies a condition (n,); a null counts as False.

    Args:
        allow: a condition as text, in the grammar of `railsearch.index.conditions`, or a polars expression.
        frame: the table.
        rows: the rows to evaluate.
    """
    import polars as pl  # noqa: PLC0415

    if frame is None:
        raise InvalidInputError(
            f"allow is the condition {str(allow)!r} but this index has no metadata; build it with metadata=..., or "
            "give allow as a mask or a list of ids."
        )
    expression = compile_condition(allow, frame.schema) if isinstance(allow, str) else allow
    try:
        needed = [name for name in frame.columns if name in set(expression.meta.root_names())]
        # Only the needed columns are gathered; if the expression needs no known column, polars reports what is wrong.
        live = frame.select(needed or frame.columns)[rows.cpu().numpy()]
        found = live.select(expression.alias("allow"))["allow"]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"allow is {str(allow)!r}, which cannot be evaluated: {' '.join(str(error).split())}; "
            f"columns are: {', '.join(frame.columns)}."
        ) from error
    if found.dtype != pl.Boolean or len(found) not in (1, len(rows)):
        raise InvalidInputError(
            f"allow is {str(allow)!r}, which returns {len(found)} values of {found.dtype}; "
            "write a condition that is true or false for each item."
        )
    mask = torch.from_numpy(found.fill_null(False).to_numpy(writable=True))
    return mask.expand(len(rows)) if len(mask) == 1 else mask


def is_expression(allow: object) -> bool:
    """Return whether a filter is a condition over metadata, and not a mask or a list."""
    return isinstance(allow, str) or (type(allow).__module__.startswith("polars") and type(allow).__name__ == "Expr")


def _described(schema: Mapping[str, object] | None) -> str:
    shown = [f"{name} ({kind})" for name, kind in (schema or {}).items() if name != KEY]
    return f"columns {', '.join(shown)}" if shown else "no columns"
