"""Readers of a teacher's scores: a table or a file of (query, item, score), with the caller's own ids."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrowTable, as_file
from railsearch.training.teacher import TeacherScores

if TYPE_CHECKING:
    from polars import DataFrame, Series

logger = logging.getLogger(__name__)

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ARROW = (".arrow", ".ipc", ".feather")
FORMATS = ", ".join((*SEPARATORS, ".parquet", *ARROW))
QUERY, ITEM, SCORE = "query", "item", "score"
SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """The ids of one side, as a table and a function name them."""

    column: str
    """Column of a table; the plain name, query or item, is always read too."""
    values: "Series"
    """(n,) what a function is given for each row: an id, or a text."""
    aliases: "DataFrame | None" = None
    """Other names of rows, which come first: the columns id and row."""
    held_out: frozenset[str] = frozenset()
    """Names that a table may have but that teach nothing, such as questions of the test."""

    def examples(self) -> str:
        """Return the name of some row in each form that a table may have."""
        found = [str(table["id"][0])[:SHOWN_CHARACTERS] for table in self.tables() if len(table)]
        return " or ".join(repr(name) for name in dict.fromkeys(found))

    def tables(self) -> "list[DataFrame]":
        """Return tables of id and row, in the order in which they are tried."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        own = pl.DataFrame({"id": self.values, "row": pl.int_range(len(self.values), eager=True)})
        return [own] if self.aliases is None else [self.aliases, own]


def read_teacher_table(teacher: ArrowTable | str | Path, queries: Names, items: Names) -> TeacherScores:
    """Return the scores of a table, or of a .csv, .tsv, Parquet or Arrow file; its ids become rows."""
    frame, source = _read(teacher)
    found = [(side, _column(frame, (side.column, plain), source)) for side, plain in ((queries, QUERY), (items, ITEM))]
    scores = _scores(frame, source)
    query_rows, item_rows = (_rows(column, side, source) for side, column in found)
    numbers = ((query_rows >= 0) & (item_rows >= 0)).nonzero()[:, 0]  # (m,) rows of the table that teach
    if len(numbers) < len(scores):
        if not len(numbers):
            raise InvalidInputError(
                f"{source} scores only held-out queries, {len(scores)} rows; give scores of training queries."
            )
        logger.info("%s: %d scores of held-out queries are not used", source, len(scores) - len(numbers))
    return TeacherScores.from_triples(
        query_rows[numbers], item_rows[numbers], scores[numbers], source=source, numbers=numbers
    )


def _read(teacher: ArrowTable | str | Path) -> "tuple[DataFrame, str]":
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    if not isinstance(teacher, (str, Path)):
        if not hasattr(teacher, "__arrow_c_stream__"):
            raise InvalidInputError(
                f"teacher is a {type(teacher).__name__}; give a function of queries and items, a table, or a file of "
                "query, item, score."
            )
        return pl.DataFrame(teacher), "the teacher's table"
    file = as_file(teacher)
    suffix = file.suffix.lower()
    try:
        if suffix in SEPARATORS:
            # Ids stay text here: 007 and 7 may be two items.
            return pl.read_csv(file, separator=SEPARATORS[suffix], infer_schema=False), str(file)
        if suffix == ".parquet":
            return pl.read_parquet(file), str(file)
        if suffix in ARROW:
            return pl.read_ipc(file), str(file)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise InvalidInputError(f"{file} cannot be read as a table ({error}); write it again.") from error
    raise InvalidInputError(f"{file} has an unknown format; give one of: {FORMATS}.")


def _column(frame: "DataFrame", names: tuple[str, ...], source: str) -> "Series":
    """Return the first of these columns that the table has."""
    for name in names:
        if name in frame.columns:
            return frame[name]
    wanted = " or ".join(repr(name) for name in dict.fromkeys(names))
    raise InvalidInputError(f"{source} has no column {wanted}; its columns are: {', '.join(frame.columns)}.")


def _scores(frame: "DataFrame", source: str) -> Tensor:
    import polars as pl  # noqa: PLC0415

    given = _column(frame, (SCORE,), source)
    if not (given.dtype.is_numeric() or given.dtype in (pl.String, pl.Boolean)):
        raise InvalidInputError(f"{source} holds {given.dtype} in column 'score'; give numbers.")
    scores = given.cast(pl.Float64, strict=False)
    is_missing = scores.is_null()
    if is_missing.any():
        row = is_missing.arg_max() or 0
        raise InvalidInputError(
            f"{source} has {is_missing.sum()} scores that are missing or no numbers, such as {given[row]!r} in row "
            f"{row}; repair or drop them."
        )
    return torch.from_numpy(scores.to_numpy().astype(np.float64))


def _rows(column: "Series", names: Names, source: str) -> Tensor:
    """Return the row of each id (M,), -1 for one that is held out; refuse a table with unknown ids."""
    import polars as pl  # noqa: PLC0415

    found = pl.Series([None] * len(column), dtype=pl.Int64)
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        column = column.cast(pl.String)
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Null)):
        raise InvalidInputError(f"{source} holds {column.dtype} in column {column.name!r}; give ids: text or numbers.")
    given = column.str.strip_chars() if column.dtype == pl.String else column
    for table in names.tables():
        alike = given.cast(table["id"].dtype, strict=False)
        alike = alike.set(~alike.cast(given.dtype, strict=False).eq_missing(given), None)  # 3.5 and "03" are not 3
        known = table.unique("id", keep="first")
        joined = pl.DataFrame({"id": alike}).join(known, on="id", how="left", maintain_order="left")["row"]
        found = found.zip_with(found.is_not_null(), joined.cast(pl.Int64))
    if names.held_out:
        is_held_out = found.is_null() & given.cast(pl.String, strict=False).is_in(list(names.held_out))
        found = found.set(is_held_out, -1)
    is_unknown = found.is_null()
    if is_unknown.any():
        row = is_unknown.arg_max() or 0
        raise InvalidInputError(
            f"{source} names {is_unknown.sum()} unknown ids in column {column.name!r}, such as "
            f"{str(column[row])[:SHOWN_CHARACTERS]!r} in row {row}; give ids of the training data, such as "
            f"{names.examples()}, and drop the other rows."
        )
    return torch.from_numpy(found.to_numpy().astype(np.int64))
