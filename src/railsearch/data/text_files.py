"""Text files as tables of text, with the number of each line; no line is dropped and no type is guessed."""

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_file
from railsearch.foundation.progress import counting

if TYPE_CHECKING:
    from polars import DataFrame, Series

BYTES_PER_BLOCK = 64 * 2**20
ROWS_PER_BLOCK = 500_000
MEGABYTE = 10**6


@dataclass(frozen=True, slots=True, eq=False)
class TextTable:
    """Rows of a text file; blank lines are skipped."""

    frame: "DataFrame"
    """Text, or null in all columns of a row with too few or too many fields."""
    lines: "Series"
    """Line at which each row begins, counted from 1."""
    num_fields: "Series"

    def as_given(self, **names: str | None) -> "DataFrame":
        """Return the columns under the names of their roles, with the line of each row and its problem, if any."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        roles = self.frame.select(pl.col(name).alias(role) for role, name in names.items() if name is not None)
        roles = roles.with_columns(self.lines.alias("line"))
        is_wrong = self.num_fields != self.frame.width
        if not is_wrong.any():
            return roles
        problem = pl.format("{} fields instead of {}", self.num_fields, self.frame.width)
        return roles.with_columns(problem=pl.when(is_wrong).then(problem))


def read_lines(
    path: str | Path,
    *,
    separator: str,
    columns: list[str],
    header: str | None = None,
    encoding: str = "utf-8",
    show_progress: bool | None = None,
) -> TextTable:
    """Read a file whose lines hold unquoted fields between separators; the first line must be the header, if given."""
    import polars as pl  # noqa: PLC0415

    file = as_file(path)
    is_whole = pl.col("num_fields") == len(columns)
    fields = pl.col("text").str.split_exact(separator, len(columns) - 1)
    parts = []
    for first_line, text in _blocks(file, encoding, show_progress):
        lines = pl.DataFrame({"text": pl.Series([text]).str.split("\n").explode().str.strip_suffix("\r")})
        lines = lines.with_row_index("line", offset=first_line)
        if first_line == 1 and header is not None:
            if lines["text"][0] != header:
                raise InvalidInputError(
                    f"{file} begins with {lines['text'][0][:80]!r} but {header!r} is needed; restore the original file."
                )
            lines = lines[1:]
        lines = lines.filter(pl.col("text").str.strip_chars() != "").with_columns(
            num_fields=pl.col("text").str.count_matches(separator, literal=True) + 1
        )
        by_place = pl.when(is_whole).then(fields)
        parts.append(lines.select("line", "num_fields", by_place.struct.rename_fields(columns).alias("fields")))
    table = pl.concat(parts)
    return TextTable(table["fields"].struct.unnest(), table["line"], table["num_fields"])


def read_csv(path: str | Path, *, separator: str = ",", show_progress: bool | None = None) -> TextTable:
    """Read a CSV file with a header; fields may be quoted."""
    import polars as pl  # noqa: PLC0415

    file = as_file(path)
    with counting(f"reading {file.name} (MB)", _megabytes(file.stat().st_size), is_shown=show_progress) as count:
        records = _records(file, separator, count)
        names = [name.strip() for name in next(records, (1, []))[1]]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError(
                f"{file} begins with the columns {', '.join(names) or '(none)'}; give a header of different names."
            )
        parts = []
        while block := list(itertools.islice(records, ROWS_PER_BLOCK)):
            whole = [fields if len(fields) == len(names) else [None] * len(names) for _, fields in block]
            frame = pl.DataFrame(whole, schema=dict.fromkeys(names, pl.String), orient="row")
            shape = pl.DataFrame(
                {"line": [line for line, _ in block], "num_fields": [len(fields) for _, fields in block]}
            )
            parts.append((frame, shape))
    if not parts:
        raise InvalidInputError(f"{file} has a header and no rows; give at least one.")
    shapes = pl.concat(shape for _, shape in parts)
    return TextTable(pl.concat(frame for frame, _ in parts), shapes["line"], shapes["num_fields"])


def _blocks(file: Path, encoding: str, show_progress: bool | None) -> Iterator[tuple[int, str]]:
    """Yield the text in blocks of complete lines, each with the number of its first line."""
    line, rest = 1, b""
    with (
        file.open("rb") as content,
        counting(f"reading {file.name} (MB)", _megabytes(file.stat().st_size), is_shown=show_progress) as count,
    ):
        while block := content.read(BYTES_PER_BLOCK):
            count(_megabytes(content.tell()) - _megabytes(content.tell() - len(block)))
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                yield line, _decoded(whole, encoding, file, line)
                line += whole.count(b"\n") + 1
        yield line, _decoded(rest, encoding, file, line)


def _records(file: Path, separator: str, count: Callable[[int], None]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, each with the line at which it begins."""

    def lines() -> Iterator[str]:
        size = 0
        with file.open("rb") as content:
            for number, line in enumerate(content, start=1):
                yield _decoded(line, "utf-8", file, number)
                count(_megabytes(size + len(line)) - _megabytes(size))
                size += len(line)

    reader = csv.reader(lines(), delimiter=separator, skipinitialspace=True, strict=True)
    line = 1
    try:
        for fields in reader:
            if len(fields) > 1 or (fields and fields[0].strip()):
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInputError(
            f"{file} cannot be read as CSV from line {line} on ({error}); repair the quotes there."
        ) from error


def _decoded(content: bytes, encoding: str, file: Path, first_line: int) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise InvalidInputError(f"{file} is not {encoding} text in line {line}; save it as {encoding}.") from error
    return text.removeprefix("\ufeff") if first_line == 1 else text


def _megabytes(size: int) -> int:
    return -(-size // MEGABYTE)
