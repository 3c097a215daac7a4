"""`railsearch data`: make a folder of prepared data, and look at one."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from railsearch import data
from railsearch.cli.options import Json
from railsearch.data import PUBLISHED, About, Published, TableOptions, TimeUnit
from railsearch.data.interactions.prepared import check_target
from railsearch.data.interactions.preparing import usual_target
from railsearch.foundation.errors import InvalidInputError

SHOWN_ROWS = 5
OF_TABLES = "Tables of your own"
USUAL = TableOptions()

app = typer.Typer(
    name="data",
    help="Prepare interactions for training: one folder, whatever they come from, that is read back quickly and "
    "checked byte by byte.",
    no_args_is_help=True,
)


@app.command()
def prepare(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(PUBLISHED)} for a published collection; any other name for data of your own.",
            show_default=False,
        ),
    ],
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="The original files: the folder or the zip archive of MovieLens, or ratings_Books.csv; a table of "
            "your own (.csv, .tsv, .parquet, .arrow), or sequences (.txt: lines of user and item, or of user and all "
            "items). Without it, a published collection is downloaded.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--to", help="The folder to write; data/NAME by default.", show_default=False)
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            help="Leave out users and items with fewer events; by default 5 for books, as in the paper, and 0 for "
            "all else.",
            min=0,
            show_default=False,
        ),
    ] = None,
    max_bad_rows: Annotated[
        int, typer.Option(help="Leave out and report up to so many rows that cannot be read.", min=0)
    ] = 0,
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="Accept the terms of use of what is downloaded.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace prepared data that is there already.")
    ] = False,
    user: Annotated[str, typer.Option(help="The column of users.", rich_help_panel=OF_TABLES)] = USUAL.user,
    item: Annotated[str, typer.Option(help="The column of items.", rich_help_panel=OF_TABLES)] = USUAL.item,
    timestamp: Annotated[
        str, typer.Option(help="The column of times, numbers or ISO dates.", rich_help_panel=OF_TABLES)
    ] = str(USUAL.timestamp),
    time_unit: Annotated[
        TimeUnit, typer.Option(help="What times that are numbers count.", rich_help_panel=OF_TABLES)
    ] = TimeUnit.SECONDS,
    in_order: Annotated[
        bool,
        typer.Option("--in-order", help="Rows are in the order of time, and have no times.", rich_help_panel=OF_TABLES),
    ] = False,
    rating: Annotated[
        str | None,
        typer.Option(help="A column of numbers to keep along.", rich_help_panel=OF_TABLES, show_default=False),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            help="A table of all items that can be recommended, with titles, say, beside the ids.",
            rich_help_panel=OF_TABLES,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read original files, or download them, and write a folder that training reads.

    Rows that cannot be read are reported with their lines; with more than --max-bad-rows of them nothing is written.

    Example: railsearch data prepare ml-1m --from Downloads/ml-1m.zip

    Example: railsearch data prepare shop --from events.csv --user customer --item product --timestamp when
    """
    target = target or usual_target(name)
    check_target(target, overwrite=overwrite)
    if name in PUBLISHED and source is None:
        accept_terms = _tell_terms(PUBLISHED[name], is_accepted=accept_terms)
    if in_order and timestamp != USUAL.timestamp:
        raise InvalidInputError(f"--in-order says that there are no times, --timestamp that {timestamp!r} has them.")
    table = TableOptions(user, item, None if in_order else timestamp, rating, time_unit, items)
    prepared = data.prepare(
        name,
        source,
        target,
        table=None if table == USUAL else table,
        min_count=min_count,
        max_bad_rows=max_bad_rows,
        accept_terms=accept_terms,
        overwrite=overwrite,
        show_progress=False if as_json else None,
    )
    _report(prepared.folder, prepared.about, as_json)


@app.command()
def info(
    folder: Annotated[Path, typer.Argument(help="A folder of prepared data.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Check every byte of a folder of prepared data, and say what it holds.

    Example: railsearch data info data/ml-1m --json
    """
    _report(folder, data.check_prepared(folder), as_json)


def _tell_terms(published: Published, *, is_accepted: bool) -> bool:
    """Name the terms of use before anything is downloaded; ask for a yes where somebody is there to say it."""
    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{published.title}\nfrom {published.address}\nterms of use: {published.terms} ({published.gist})")
    if is_accepted or not _is_somebody_there():
        return is_accepted
    if not typer.confirm("Do you accept them?", err=True):
        console.print("nothing was downloaded")
        raise typer.Exit(1)
    return True


def _is_somebody_there() -> bool:
    return sys.stdin.isatty()


def _report(folder: Path, about: About, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"folder": str(folder), **dataclasses.asdict(about)}, indent=2))
        return
    table = Table(show_header=False, box=None)
    for name, value in _summary(folder, about).items():
        table.add_row(name, value)
    Console(markup=False, highlight=False).print(table)


def _summary(folder: Path, about: About) -> dict[str, str]:
    columns = f" ({', '.join(about.item_columns)})" if about.item_columns else ""
    rows = {
        "folder": str(folder),
        "data": f"{about.name}, from {about.source}",
        "users": f"{about.num_users:,}",
        "items": f"{about.num_items:,}{columns}",
        "events": f"{about.num_events:,}",
        "history": f"median {about.median_history:,}, longest {about.longest_history:,}",
        "time": f"{about.first_time} to {about.last_time}" if about.has_times else "none; events are in order",
        "ratings": "kept" if about.has_ratings else "none",
    }
    if about.min_count > 1:
        rows["left out"] = f"{about.num_left_out:,} events: users or items with fewer than {about.min_count}"
    shown = "; ".join(about.bad_rows[:SHOWN_ROWS]) + ("; ..." if len(about.bad_rows) > SHOWN_ROWS else "")
    rows["bad rows"] = f"{len(about.bad_rows):,} left out: {shown}" if about.bad_rows else "none"
    if about.terms is not None:
        rows["terms of use"] = about.terms
    return rows
