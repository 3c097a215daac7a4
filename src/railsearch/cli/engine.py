"""`railsearch engine`: collections of engines that keep the items of an index on a server."""

import dataclasses
from typing import Annotated

import typer

from railsearch.cli.options import IndexFolder, Json
from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.engines import parse_engine, sync_engine
from railsearch.index import Index

app = typer.Typer(
    name="engine",
    help="Collections of items in Milvus or PostgreSQL, which searches use to find candidates.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Keep `sync` a command of its own: an app with one command would have no name for it."""


@app.command()
def sync(
    index: IndexFolder,
    *,
    engine: Annotated[
        str,
        typer.Option(
            help="milvus or postgres, with settings in parentheses if needed, such as Postgres(movies, links=32).",
            show_default=False,
        ),
    ],
    collection: Annotated[
        str | None, typer.Option(help="Name of the collection, or of the table.", show_default=False)
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(
            help="Address of Milvus, without credentials, such as http://127.0.0.1:19530.", show_default=False
        ),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the token of Milvus.", show_default=False),
    ] = None,
    url_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable that holds the connection string of PostgreSQL; by default RAILSEARCH_POSTGRES.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Type of the vectors in PostgreSQL: vector (at most 2,000 values) or halfvec (at most 4,000).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a collection up to the newest version of an index; create it if it is missing.

    Only items that changed are written or removed. Run the command again to complete an interrupted sync. The index
    folder stays the source of truth: it holds the components, the gates and the metadata, and scores all candidates.

    Example: railsearch engine sync movies.index --engine milvus --uri http://127.0.0.1:19530 --collection movies

    Example: railsearch engine sync movies.index --engine postgres --collection movies --column halfvec
    """
    given = {
        "collection": collection, "uri": uri, "token_env": token_env, "url_env": url_env, "column": column,
    }  # fmt: skip
    chosen = parse_engine(engine, {name: value for name, value in given.items() if value is not None})
    report = sync_engine(Index.open(index), chosen, show_progress=False if as_json else None)
    if as_json:
        print_json({"index": str(index), "engine": chosen.key, **dataclasses.asdict(report)})
        return
    shown = [
        ("index", index), ("engine", chosen.key), ("version", report.version), ("items", f"{report.num_items:,}"),
        ("written", f"{report.num_written:,}"), ("removed", f"{report.num_removed:,}"),
        ("unchanged", f"{report.num_unchanged:,}"),
    ]  # fmt: skip
    make_console(wraps=True).print(make_summary_table(shown))
