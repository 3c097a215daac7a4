"""Interactions from your own table: CSV with a header, Parquet or Arrow."""

from pathlib import Path
from typing import TYPE_CHECKING

from railsearch.data.interactions.columns import TimeUnit, as_numbers_where_lossless, read_text_column
from railsearch.data.interactions.interactions import Interactions, as_given, assemble, check_columns
from railsearch.data.table_files import SEPARATORS, TABLES, read_table
from railsearch.data.text_files import TextTable, read_csv
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_file

if TYPE_CHECKING:
    from polars import DataFrame


def read_interactions(
    path: str | Path,
    *,
    user: str = "user",
    item: str = "item",
    timestamp: str | None = "timestamp",
    rating: str | None = None,
    time_unit: str = TimeUnit.SECONDS,
    items: str | Path | None = None,
    max_bad_rows: int = 0,
    show_progress: bool | None = None,
) -> Interactions:
    """Read interactions from a CSV file with a header, or from a Parquet or Arrow file, as its suffix states.

    Ids of a CSV file are whole numbers if every id of the column is written as one, and text otherwise; 007 and 7 stay
    different ids. Times are numbers, or dates such as 2024-05-01 or 2024-05-01T12:30:00+02:00; dates without a zone are
    in UTC.

    Args:
        path: a file with one row for each event.
        user: column of the users.
        item: column of the items.
        timestamp: column of the times; None if the rows are already sorted by time.
        rating: column of ratings to keep.
        time_unit: unit of numeric times: s, ms, us or ns.
        items: a table of all items that can be recommended, with their ids in a column that is also called `item`;
            other columns, such as titles, are kept. Columns of a CSV file are numbers if every value is written as one,
            such as 7 or 19.90; empty values are missing.
        max_bad_rows: skip and report up to this many rows in which a value is missing or cannot be read; with more, an
            error is raised.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    names = {"user": user, "item": item, "timestamp": timestamp, "rating": rating}
    events, source = _read(path, show_progress), str(path)
    catalogue = None if items is None else _read(items, show_progress)
    check_columns(_frame(events).columns, names, source)
    known = None if catalogue is None else _catalogue(catalogue, item, str(items))
    if isinstance(events, TextTable):
        given = events.as_given(**names)
        given = given.with_columns(*as_numbers_where_lossless(given["user"]))
    else:
        given = as_given(events, names)
    given, known = _with_item_numbers(
        given, known, item, are_text=(isinstance(events, TextTable), isinstance(catalogue, TextTable))
    )
    return assemble(
        given,
        catalogue=known,
        catalogue_column=item,
        time_unit=time_unit,
        max_bad_rows=max_bad_rows,
        source=source,
    )


def _read(path: str | Path, show_progress: bool | None) -> "TextTable | DataFrame":
    file = as_file(path)
    if file.suffix not in TABLES:
        raise InvalidInputError(f"{file} has an unknown format; give one of: {', '.join(TABLES)}.")
    if file.suffix in SEPARATORS:
        return read_csv(file, separator=SEPARATORS[file.suffix], show_progress=show_progress)
    return read_table(file)


def _frame(table: "TextTable | DataFrame") -> "DataFrame":
    return table.frame if isinstance(table, TextTable) else table


def _catalogue(table: "TextTable | DataFrame", item: str, source: str) -> "DataFrame":
    """Return a table of items; columns of a text file that hold numbers become numbers, except ids."""
    check_columns(_frame(table).columns, {"item": item}, source)
    if not isinstance(table, TextTable):
        return table
    bad = table.lines.filter(table.num_fields != table.frame.width)
    if len(bad):
        raise InvalidInputError(
            f"{source} has too few or too many fields in line {bad[0]}; {table.frame.width} are needed."
        )
    return table.frame.with_columns(read_text_column(column) for column in table.frame.drop(item))


def _with_item_numbers(
    events: "DataFrame", catalogue: "DataFrame | None", column: str, *, are_text: tuple[bool, bool]
) -> "tuple[DataFrame, DataFrame | None]":
    """Return the items of text files as numbers, if the items of both tables can be numbers."""
    if catalogue is None:
        return (events.with_columns(*as_numbers_where_lossless(events["item"])) if are_text[0] else events), None
    columns = [events["item"], catalogue[column]]
    texts = [found for found, is_text in zip(columns, are_text, strict=True) if is_text]
    typed = [found for found, is_text in zip(columns, are_text, strict=True) if not is_text]
    if not all(found.dtype.is_integer() for found in typed):
        return events, catalogue
    numbers = iter(as_numbers_where_lossless(*texts))
    return (
        events.with_columns(next(numbers)) if are_text[0] else events,
        catalogue.with_columns(next(numbers)) if are_text[1] else catalogue,
    )
