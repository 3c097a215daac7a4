"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from railsearch.distributed.batch import RayRunner, Runner
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Engine, Strategy, parse_engine, parse_strategy
from railsearch.index.engines import ensure_available
from railsearch.index.rules import MaxPer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
IndexFolder = Annotated[Path, typer.Argument(help="The index folder.", show_default=False)]
_items = typer.Option(
    "--items",
    help="Items: a .npy array of embeddings (N, D), or a Parquet or Arrow table with a column of embeddings. A table "
    "may also have a column of ids, integers or strings; all other columns become metadata.",
    show_default=False,
)
OptionalItemsFile = Annotated[Path | None, _items]
PassagesFile = Annotated[
    Path | None,
    typer.Option(
        "--passages",
        help="Passages to encode with a text model: id and text, as JSON lines or a table (.csv, .parquet, .arrow).",
        show_default=False,
    ),
]
IdsFile = Annotated[
    Path | None,
    typer.Option(
        "--ids",
        help="Ids of items: a .npy array of integers or strings, or a .txt file with one string on each line.",
    ),
]
MetadataFile = Annotated[
    Path | None, typer.Option("--metadata", help="Metadata for the items of a .npy array: a Parquet or Arrow table.")
]
IdColumn = Annotated[str, typer.Option(help="Column with the ids in a table of items.")]
EmbeddingColumn = Annotated[str, typer.Option(help="Column with the embeddings in a table.")]
EngineText = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Engine that finds candidates by dot product, such as Faiss(hnsw), Faiss(ivf, effort=32), "
        "Milvus(http://127.0.0.1:19530, movies) or Postgres(movies); by default Flat, a plain scan.",
        show_default=False,
    ),
]
StrategyText = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="Search strategy, such as TwoPass, Average(500) or Combined(5,200). By default, the choice of tune.",
        show_default=False,
    ),
]
OutputFolder = Annotated[
    str | None,
    typer.Option(
        "--output",
        help="Write the results as Parquet files into this folder, in parts. A second run of the same command computes "
        "only the parts that are missing.",
        show_default=False,
    ),
]
RowsPerPart = Annotated[
    int | None,
    typer.Option(
        "--rows-per-part",
        help="Rows of the input in one part; memory holds one part. By default 8192.",
        min=1,
        show_default=False,
    ),
]
ExcludedItems = Annotated[
    str | None,
    typer.Option("--exclude", help="Ids of items that are never returned, separated by commas.", show_default=False),
]
MaxPerTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--max-per",
        help="The most items of one value of a column: genre=2. A text that holds several values is cut by a separator "
        "after a colon: genres=2:| cuts Action|Comedy. May be repeated.",
        show_default=False,
    ),
]
Diversity = Annotated[
    float,
    typer.Option(
        "--diversity",
        help="From 0 to 1: re-rank the best items so that they differ more (maximal marginal relevance).",
        min=0.0,
        max=1.0,
    ),
]
Pool = Annotated[
    int | None,
    typer.Option(
        "--pool",
        help="Best items that --max-per and --diversity choose from; by default 4 k, and at least 100.",
        min=1,
        show_default=False,
    ),
]
OnRay = Annotated[bool, typer.Option("--ray", help="Compute the parts on Ray, in parallel.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="Address of the Ray cluster; by default that of the variable RAY_ADDRESS, or a new Ray on this machine.",
        show_default=False,
    ),
]


def chosen_runner(*, on_ray: bool, address: str | None) -> Runner | None:
    """Return the runner of a batch job: Ray, or None for this process."""
    if address is not None and not on_ray:
        raise InvalidInputError("--ray-address needs --ray; add it, or omit the address.")
    return RayRunner(address=address) if on_ray else None


def chosen_strategy(text: str | None) -> Strategy | None:
    """Read the strategy that a command was given."""
    return None if text is None else parse_strategy(text)


def chosen_engine(text: str | None) -> Engine | None:
    """Read the engine that a command was given, and check that it is available here."""
    return None if text is None else ensure_available(parse_engine(text))


def chosen_limits(texts: list[str] | None) -> dict[str, MaxPer] | None:
    """Read the rules of --max-per.

    >>> chosen_limits(["genre=2", "genres=1:|"])
    {'genre': MaxPer(limit=2, separator=None), 'genres': MaxPer(limit=1, separator='|')}
    """
    limits: dict[str, MaxPer] = {}
    for text in texts or ():
        column, _, rest = text.rpartition("=")
        number, colon, separator = rest.partition(":")
        if not column or not (number.isascii() and number.isdigit() and len(number) < 10) or (colon and not separator):
            raise InvalidInputError(f"--max-per is {text!r:.80}; give COLUMN=NUMBER, such as genre=2 or genres=2:|.")
        if column in limits:
            raise InvalidInputError(f"--max-per names {column!r:.80} twice; give one limit for a column.")
        limits[column] = MaxPer(int(number), separator=separator or None)
    return limits or None


def ids_of(text: str) -> list[str]:
    """Return the ids in a text, which commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]
