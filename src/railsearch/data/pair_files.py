"""Reader of (query row, item row) pairs: which items are right for which query, as CSV, NumPy, Parquet or Arrow."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from railsearch.data.items import TABLES, read_array
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame

DELIMITERS = {".csv": ",", ".tsv": "\t"}
FORMATS = ", ".join((*DELIMITERS, ".npy", *TABLES))
QUERY, ITEM = "query", "item"
LARGEST_ROW = 2**63 - 1


def read_pair_rows(path: str | Path) -> npt.NDArray[np.int64]:
    """Read pairs (M, 2) of a query row and the row of an item that is right for it; rows count from 0.

    Args:
        path: a .csv or .tsv file with two columns of whole numbers, with or without a header; a .npy array (M, 2); or a
            Parquet or Arrow table. If there are more columns, those called query and item are read.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "pairs.csv"
    >>> _ = file.write_text("query,item\\n0,7\\n1,2\\n")
    >>> read_pair_rows(file).tolist()
    [[0, 7], [1, 2]]
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(f"{file} does not exist or is not a file; give one of: {FORMATS}.")
    suffix = file.suffix.lower()
    if suffix in DELIMITERS:
        return _read_text(file, DELIMITERS[suffix])
    if suffix == ".npy":
        return _checked(read_array(file), file)
    if suffix in TABLES:
        return _read_table(file)
    raise InvalidInputError(f"{file} has an unknown format; give one of: {FORMATS}.")


def _read_text(file: Path, delimiter: str) -> npt.NDArray[np.int64]:
    pairs: list[tuple[int, int]] = []
    columns = None
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, delimiter=delimiter)
            for fields in reader:
                if not any(field.strip() for field in fields):
                    continue
                if columns is None:
                    has_header = not all(_is_row(field) for field in fields)
                    columns = _columns([field.strip().lower() for field in fields], file, has_names=has_header)
                    if has_header:
                        continue
                pairs.append(_as_pair(fields, columns, f"line {reader.line_num} of {file}"))
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not utf-8 text at byte {error.start}; save it as utf-8.") from error
    except csv.Error as error:
        raise InvalidInputError(f"{file} cannot be read as a table ({error}); write it again.") from error
    if not pairs:
        raise InvalidInputError(f"{file} holds no pairs; give at least one line: query row, item row.")
    return np.array(pairs, dtype=np.int64)


def _read_table(file: Path) -> npt.NDArray[np.int64]:
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    try:
        frame: DataFrame = pl.read_parquet(file) if file.suffix.lower() == ".parquet" else pl.read_ipc(file)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read as a table ({error}); write it again.") from error
    columns = _columns([name.lower() for name in frame.columns], file, has_names=True)
    chosen = frame.select(frame.columns[column] for column in columns)
    for name, dtype in chosen.schema.items():
        if not dtype.is_integer() or chosen[name].null_count():
            raise InvalidInputError(
                f"{file} holds {dtype} with {chosen[name].null_count()} missing values in column {name!r}; give whole "
                "numbers without gaps."
            )
    return _checked(chosen.to_numpy(), file)


def _columns(names: list[str], file: Path, *, has_names: bool) -> tuple[int, int]:
    """Return the places of the query column and the item column."""
    if has_names and QUERY in names and ITEM in names:
        return names.index(QUERY), names.index(ITEM)
    if len(names) == 2:
        return 0, 1
    raise InvalidInputError(
        f"{file} has {len(names)} columns; give two, the row of a query and the row of an item, or call them "
        f"{QUERY} and {ITEM}."
    )


def _as_pair(fields: list[str], columns: tuple[int, int], place: str) -> tuple[int, int]:
    query, item = (fields[column].strip() if column < len(fields) else "" for column in columns)
    if not (_is_row(query) and _is_row(item)):
        raise InvalidInputError(f"{place} is {','.join(fields)[:80]!r}; give two whole numbers: query row, item row.")
    return int(query), int(item)


def _is_row(text: str) -> bool:
    stripped = text.strip()
    return stripped.isascii() and stripped.isdecimal() and len(stripped) < 20 and int(stripped) <= LARGEST_ROW


def _checked(array: npt.NDArray[np.generic], file: Path) -> npt.NDArray[np.int64]:
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0 or array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{file} has shape {array.shape} of {array.dtype}; give whole numbers (pairs, 2): query row, item row."
        )
    return np.ascontiguousarray(array).astype(np.int64)
