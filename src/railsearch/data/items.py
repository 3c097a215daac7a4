"""Readers of items and queries: NumPy arrays, and Parquet or Arrow tables, in batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count
from railsearch.foundation.results import ItemBatch, ItemBatches

if TYPE_CHECKING:
    from polars import DataFrame, DataType, LazyFrame, Series

TABLES = (".parquet", ".arrow", ".ipc", ".feather")
FORMATS = ", ".join((".npy", *TABLES))


def read_array(path: str | Path) -> npt.NDArray[np.generic]:
    """Map the array of a .npy file into memory; nothing is unpickled."""
    file = _existing(path)
    if file.suffix != ".npy":
        raise InvalidInputError(f"{file} is not a .npy file; save the array with numpy.save.")
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError, OverflowError, MemoryError, SyntaxError, TokenError) as error:
        raise InvalidInputError(
            f"{file} cannot be read as an array ({error}); save it again with numpy.save(path, array)."
        ) from error


def read_ids(path: str | Path) -> npt.NDArray[np.generic] | list[str]:
    """Read ids of items: a .npy array of integers or strings, or a .txt file with one string on each line."""
    file = _existing(path)
    if file.suffix != ".txt":
        return read_array(file)
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{file} cannot be read as text ({error}); write one id on each line.") from error
    if "" in lines:
        raise InvalidInputError(f"{file} has no id in line {lines.index('') + 1}; write one id on each line.")
    return lines


def read_items(
    path: str | Path,
    *,
    ids: str | Path | None = None,
    metadata: str | Path | None = None,
    id_column: str = "id",
    embedding_column: str = "embedding",
    batch_size: int = 65_536,
) -> ItemBatches:
    """Read items in batches, so that a file may be larger than memory.

    Args:
        path: a .npy array (N, D) or (N, Px, d), or a Parquet or Arrow table with a column of embeddings. If it has a
            column of ids, these are used; all other columns become metadata.
        ids: a .npy array of ids, or a .txt file with one string on each line, for items in an array.
        metadata: a Parquet or Arrow table with one row for each item, for items in an array.
        id_column: column of the ids in a table.
        embedding_column: column of the embeddings in a table: lists of numbers, all of one length.
        batch_size: number of rows that are read at once.
    """
    check_count(batch_size, name="batch_size")
    file = _existing(path)
    if file.suffix == ".npy":
        return _array_batches(file, ids, metadata, batch_size)
    if ids is not None or metadata is not None:
        raise InvalidInputError(f"{file} is a table, which has ids and metadata as columns; omit ids and metadata.")
    return _table_batches(file, id_column, embedding_column, batch_size)


def read_queries(path: str | Path, *, embedding_column: str = "embedding") -> npt.NDArray[np.generic]:
    """Read query embeddings: a .npy array, or the column of embeddings of a Parquet or Arrow table."""
    file = _existing(path)
    if file.suffix == ".npy":
        array = read_array(file)
        if array.ndim < 2:
            raise InvalidInputError(f"{file} has shape {array.shape}; give an array of embeddings (B, D).")
        return array
    frame = _collected(_scan(file), file)
    return _embeddings(_column(frame, embedding_column, file), file)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """Query embeddings in a file that may be larger than memory; any stretch of rows can be read."""

    path: Path
    embedding_column: str
    id_column: str | None
    """Column with the ids of the queries in a table; without one, the rows are numbered from 0."""
    num_rows: int

    @classmethod
    def open(
        cls, path: str | Path, *, embedding_column: str = "embedding", id_column: str | None = None
    ) -> "QueryFile":
        """Check a file of queries: a .npy array, or a Parquet or Arrow table with a column of embeddings.

        Args:
            path: the file.
            embedding_column: column of the embeddings in a table.
            id_column: column with the ids of the queries in a table; by default `id` if there is one.
        """
        import polars as pl  # noqa: PLC0415

        file = _existing(path)
        if file.suffix == ".npy":
            if id_column is not None:
                raise InvalidInputError(f"{file} is an array, which has no column {id_column!r}; give a table.")
            return cls(file, embedding_column, None, len(read_queries(file)))
        table = _scan(file)
        first = _collected(table.head(1), file)
        for name in (embedding_column, *([] if id_column is None else [id_column])):
            _column(first, name, file)
        chosen = "id" if id_column is None and "id" in first.columns else id_column
        return cls(file, embedding_column, chosen, int(_collected(table.select(pl.len()), file).item()))

    def read(self, first: int, count: int) -> "tuple[npt.NDArray[np.generic], Series]":
        """Return the embeddings and the ids of `count` queries from row `first` on, or of as many as there are."""
        import polars as pl  # noqa: PLC0415

        last = min(first + count, self.num_rows)
        numbers = pl.Series("query", range(first, last), dtype=pl.Int64)
        if self.path.suffix == ".npy":
            return read_array(self.path)[first:last], numbers
        names = [self.embedding_column, *([] if self.id_column is None else [self.id_column])]
        frame = _collected(_scan(self.path).select(names).slice(first, last - first), self.path)
        embeddings = _embeddings(frame[self.embedding_column], self.path, first)
        return embeddings, numbers if self.id_column is None else frame[self.id_column].alias("query")


def _array_batches(file: Path, ids: str | Path | None, metadata: str | Path | None, batch_size: int) -> ItemBatches:
    array = read_array(file)
    known_ids = None if ids is None else read_ids(ids)
    table = None if metadata is None else _collected(_scan(_existing(metadata)), metadata)
    if array.ndim == 0:
        raise InvalidInputError(f"{file} holds a single number; give an array of embeddings (N, D).")
    for name, given in ((ids, known_ids), (metadata, table)):
        if given is not None and len(given) != len(array):
            raise InvalidInputError(
                f"{name} has {len(given)} rows but {file} has {len(array)}; give one for each item."
            )
    batches = (
        ItemBatch(
            array[first : first + batch_size],
            None if known_ids is None else known_ids[first : first + batch_size],
            None if table is None else table[first : first + batch_size],
        )
        for first in range(0, len(array), batch_size)
    )
    return ItemBatches(batches, len(array))


def _table_batches(file: Path, id_column: str, embedding_column: str, batch_size: int) -> ItemBatches:
    import polars as pl  # noqa: PLC0415

    table = _scan(file)
    _column(_collected(table.head(1), file), embedding_column, file)
    num_items = int(_collected(table.select(pl.len()), file).item())

    def batches() -> Iterator[ItemBatch]:
        first = 0
        while first < num_items:
            frame = _collected(table.slice(first, batch_size), file)
            others = frame.drop(embedding_column, id_column, strict=False)
            yield ItemBatch(
                _embeddings(frame[embedding_column], file, first),
                frame[id_column].to_numpy() if id_column in frame.columns else None,
                others if others.width else None,
            )
            first += batch_size

    return ItemBatches(batches(), num_items)


def _embeddings(column: "Series", file: Path, first_row: int = 0) -> npt.NDArray[np.generic]:
    """Return a column of lists as an array (n, D), or of lists of lists as an array (n, Px, d)."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    if not isinstance(column.dtype, (pl.List, pl.Array)):
        raise InvalidInputError(
            f"{file} holds {column.dtype} in column {column.name!r}; give lists of numbers, all of one length."
        )
    if column.null_count():
        row = first_row + int(column.is_null().arg_true()[0])
        raise InvalidInputError(f"{file} has no embedding in row {row}; drop or repair that row.")
    if isinstance(column.dtype, pl.List) and len(column):
        sizes = column.list.len()
        odd = (sizes != sizes[0]).arg_true()
        if len(odd):
            raise InvalidInputError(
                f"{file} has {sizes[int(odd[0])]} numbers in row {first_row + int(odd[0])} but {sizes[0]} in row "
                f"{first_row}; give lists of one length."
            )
    try:
        return column.cast(_array_type(column)).to_numpy()
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{file} holds {column.dtype} in column {column.name!r}, which is not an array of numbers ({error}); give "
            "lists of numbers, all of one length."
        ) from error


def _array_type(column: "Series") -> "DataType":
    import polars as pl  # noqa: PLC0415

    if isinstance(column.dtype, (pl.List, pl.Array)):
        inner = column.explode()
        width = len(inner) // max(1, len(column))
        return pl.Array(_array_type(inner), width)
    return pl.Float32() if column.dtype != pl.Float64 else pl.Float64()


def _column(frame: "DataFrame", name: str, file: Path) -> "Series":
    if name not in frame.columns:
        raise InvalidInputError(f"{file} has no column {name!r}; its columns are: {', '.join(frame.columns)}.")
    return frame[name]


def _collected(table: "LazyFrame", file: object) -> "DataFrame":
    import polars as pl  # noqa: PLC0415

    try:
        return table.collect()
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read as a table ({error}); write it again.") from error


def _scan(file: Path) -> "LazyFrame":
    import polars as pl  # noqa: PLC0415

    if file.suffix not in TABLES:
        raise InvalidInputError(f"{file} has an unknown format; give one of: {FORMATS}.")
    try:
        table = pl.scan_parquet(file) if file.suffix == ".parquet" else pl.scan_ipc(file)
        table.collect_schema()
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read as a table ({error}); write it again.") from error
    return table


def _existing(path: str | Path) -> Path:
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(f"{file} does not exist or is not a file; give one of: {FORMATS}.")
    return file
