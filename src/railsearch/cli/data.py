"""`railsearch data`: prepare data for training, and describe prepared data."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from railsearch import data
from railsearch.cli.options import Json
from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.data import PUBLISHED, About, Published, TableOptions, TimeUnit
from railsearch.data.interactions.prepared import FORMAT
from railsearch.data.interactions.preparing import usual_target
from railsearch.folders import check_target
from railsearch.foundation.errors import InvalidInputError

SHOWN_ROWS = 5
OF_TABLES = "Tables of your own"
USUAL = TableOptions()

app = typer.Typer(
    name="data",
    help="Prepare interactions for training: a folder in one format for all sources, with checksums.",
    no_args_is_help=True,
)


@app.command()
def prepare(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(PUBLISHED)} for a published data set; any other name for data of your own.",
            show_default=False,
        ),
    ],
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="The original files: the folder or zip archive of MovieLens, or ratings_Books.csv; a table of your "
            "own (.csv, .tsv, .parquet, .arrow); or sequences (.txt, each line a user and one item, or a user and all "
            "items). Without --from, a published data set is downloaded.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--to", help="Folder to write; by default data/NAME.", show_default=False)
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            help="Drop users and items with fewer events. By default 5 for books, as in the paper, and 0 otherwise.",
            min=0,
            show_default=False,
        ),
    ] = None,
    max_bad_rows: Annotated[
        int, typer.Option(help="Skip and report up to this many rows that cannot be read.", min=0)
    ] = 0,
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="Accept the terms of use of the downloaded data set.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace prepared data that already exists.")] = False,
    user: Annotated[str, typer.Option(help="Column with the users.", rich_help_panel=OF_TABLES)] = USUAL.user,
    item: Annotated[str, typer.Option(help="Column with the items.", rich_help_panel=OF_TABLES)] = USUAL.item,
    timestamp: Annotated[
        str, typer.Option(help="Column with the times: numbers or ISO dates.", rich_help_panel=OF_TABLES)
    ] = str(USUAL.timestamp),
    time_unit: Annotated[
        TimeUnit, typer.Option(help="Unit of numeric times.", rich_help_panel=OF_TABLES)
    ] = TimeUnit.SECONDS,
    in_order: Annotated[
        bool,
        typer.Option(
            "--in-order", help="The rows are sorted by time and have no time column.", rich_help_panel=OF_TABLES
        ),
    ] = False,
    rating: Annotated[
        str | None,
        typer.Option(help="Column with ratings to keep.", rich_help_panel=OF_TABLES, show_default=False),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            help="A table of all items that can be recommended, with their ids and other columns, such as titles.",
            rich_help_panel=OF_TABLES,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read original files, or download them, and write a folder of prepared data for training.

    Rows that cannot be read are reported with their line numbers. If there are more than --max-bad-rows of them,
    nothing is written.

    Example: railsearch data prepare ml-1m --from Downloads/ml-1m.zip

    Example: railsearch data prepare shop --from events.csv --user customer --item product --timestamp when
    """
    target = target or usual_target(name)
    check_target(FORMAT, target, overwrite=overwrite)
    if name in PUBLISHED and source is None:
        accept_terms = _tell_terms(PUBLISHED[name], is_accepted=accept_terms)
    if in_order and timestamp != USUAL.timestamp:
        raise InvalidInputError(
            f"--in-order means that there are no times, but --timestamp names the column {timestamp!r}; omit one."
        )
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
    """Check every byte of a folder of prepared data, and describe it.

    Example: railsearch data info data/ml-1m --json
    """
    _report(folder, data.check_prepared(folder), as_json)


def _tell_terms(published: Published, *, is_accepted: bool) -> bool:
    """Show the terms of use before anything is downloaded; ask for consent if a person is at the terminal."""
    console = make_console(stderr=True)
    console.print(f"{published.title}\nfrom {published.address}\nterms of use: {published.terms} ({published.gist})")
    if is_accepted or not _is_person_present():
        return is_accepted
    if not typer.confirm("Do you accept the terms?", err=True):
        console.print("nothing was downloaded")
        raise typer.Exit(1)
    return True


def _is_person_present() -> bool:
    return sys.stdin.isatty()


def _report(folder: Path, about: About, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(folder), **dataclasses.asdict(about)})
        return
    make_console(wraps=True).print(make_summary_table(_summary(folder, about).items()))


def _summary(folder: Path, about: About) -> dict[str, str]:
    columns = f" ({', '.join(about.item_columns)})" if about.item_columns else ""
    rows = {
        "folder": str(folder),
        "data": f"{about.name}, from {about.source}",
        "users": f"{about.num_users:,}",
        "items": f"{about.num_items:,}{columns}",
        "events": f"{about.num_events:,}",
        "history": f"median {about.median_history:,}, longest {about.longest_history:,}",
        "time": f"{about.first_time} to {about.last_time}" if about.has_times else "none; events are sorted by time",
        "ratings": "kept" if about.has_ratings else "none",
    }
    if about.min_count > 1:
        rows["dropped"] = f"{about.num_dropped:,} events of users or items with fewer than {about.min_count} events"
    shown = "; ".join(about.bad_rows[:SHOWN_ROWS]) + ("; ..." if len(about.bad_rows) > SHOWN_ROWS else "")
    rows["bad rows"] = f"{len(about.bad_rows):,} skipped: {shown}" if about.bad_rows else "none"
    if about.terms is not None:
        rows["terms of use"] = about.terms
    return rows
