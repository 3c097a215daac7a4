"""Reader of questions and passages of your own: JSON lines, or a CSV, Parquet or Arrow table."""

from collections.abc import Iterator
from pathlib import Path

from railsearch.data.passages.json_lines import Record, read_json_lines
from railsearch.data.table_files import SEPARATORS, TABLES, read_table
from railsearch.data.text_files import read_csv
from railsearch.foundation.errors import InvalidInputError


def read_records(path: str | Path, *, show_progress: bool | None = None) -> Iterator[Record]:
    """Yield the records of a file, as its suffix states.

    Tables are .csv or .tsv with a header, Parquet or Arrow, and have one record in each row, without the cells that
    are null. Every other file is read as JSON lines, plain or packed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "pairs.csv"
    >>> _ = file.write_text('question,passage\\nwho?,"Ann, of course."\\n')
    >>> [record.fields for record in read_records(file)]
    [{'question': 'who?', 'passage': 'Ann, of course.'}]
    """
    suffix = Path(path).suffix
    if suffix in SEPARATORS:
        yield from _csv_records(path, SEPARATORS[suffix], show_progress)
    elif suffix in TABLES:
        for row, fields in enumerate(read_table(path).iter_rows(named=True)):
            yield Record(_present(fields), path, row, unit="row")
    else:
        yield from read_json_lines(path, show_progress=show_progress)


def _csv_records(path: str | Path, separator: str, show_progress: bool | None) -> Iterator[Record]:
    table = read_csv(path, separator=separator, show_progress=show_progress)
    for line, num_fields, fields in zip(table.lines, table.num_fields, table.frame.iter_rows(named=True), strict=True):
        if num_fields != table.frame.width:
            raise InvalidInputError(
                f"{path} has {num_fields} fields in line {line} but the header has {table.frame.width}; quote fields "
                "that hold a separator or a line break."
            )
        yield Record(_present(fields), path, line)


def _present(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
