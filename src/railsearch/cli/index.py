"""`railsearch index`: create, change, check and describe an index folder."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from railsearch.cli.index_build import build, check_own_ids
from railsearch.cli.options import (
    EmbeddingColumn,
    EngineText,
    IdColumn,
    IdsFile,
    IndexFolder,
    Json,
    MetadataFile,
    OptionalItemsFile,
    PassagesFile,
    chosen_engine,
)
from railsearch.cli.shard import shard
from railsearch.cli.summary import report
from railsearch.cli.terminal import make_console, print_json, visible
from railsearch.data import read_ids, read_items, read_passage_texts, read_queries
from railsearch.distributed.opening import is_split, open_index
from railsearch.distributed.verification import verify_shards
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Index
from railsearch.text_retriever import TextRetriever

app = typer.Typer(
    name="index",
    help="Create, change and check an index folder. Every change is a commit: it is durable once the command has "
    "finished, and if the command is killed the previous version remains.",
    no_args_is_help=True,
)
app.command()(build)
app.command()(shard)


@app.command()
def add(
    index: IndexFolder,
    *,
    items: OptionalItemsFile = None,
    passages: PassagesFile = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The text model that built the index, for --passages; only needed if its folder was moved.",
            show_default=False,
        ),
    ] = None,
    ids: IdsFile = None,
    metadata: MetadataFile = None,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace items whose ids are already in the index.")] = False,
    id_column: IdColumn = "id",
    embedding_column: EmbeddingColumn = "embedding",
    as_json: Json = False,
) -> None:
    """Add items; with --upsert, replace items that have the same ids.

    To an index of a text model, --passages adds texts. The model is found through the index.

    Example: railsearch index add movies.index --items new-movies.parquet --upsert

    Example: railsearch index add answers.index --passages new-answers.jsonl
    """
    if (items is None) == (passages is None):
        raise InvalidInputError("give either --items with embeddings or --passages with texts.")
    opened, shown = open_index(index), False if as_json else None
    if passages is not None:
        check_own_ids(ids, metadata)
        if not isinstance(opened, Index):
            raise InvalidInputError(f"{index} is split; encode the texts, and add them with --items.")
        retriever = TextRetriever.load_for(opened, model)
        (retriever.upsert if upsert else retriever.add)(read_passage_texts(passages), show_progress=shown)
    else:
        assert items is not None
        batches = read_items(items, ids=ids, metadata=metadata, id_column=id_column, embedding_column=embedding_column)
        (opened.upsert if upsert else opened.add)(batches, show_progress=shown)
    report(opened, as_json)


@app.command()
def remove(
    index: IndexFolder,
    item_ids: Annotated[list[str] | None, typer.Argument(help="Ids of items to remove.", show_default=False)] = None,
    ids: IdsFile = None,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="Ignore ids that are not in the index.")] = False,
    as_json: Json = False,
) -> None:
    """Remove items by their ids.

    Example: railsearch index remove movies.index 17 42

    Example: railsearch index remove shop.index sku-17 sku-42

    Example: railsearch index remove shop.index --ids discontinued.txt
    """
    if (ids is None) == (not item_ids):
        raise InvalidInputError("no items to remove; give their ids as arguments, or a file of ids with --ids.")
    opened = open_index(index)
    given = read_ids(ids) if ids is not None else item_ids or []
    opened.remove(given if opened.has_keys else _as_integers(given), missing_ok=missing_ok)
    report(opened, as_json)


@app.command()
def compact(index: IndexFolder, *, engine: EngineText = None, as_json: Json = False) -> None:
    """Rewrite the index without removed items; after many changes, searches become faster.

    With --engine, the tables of that engine are built and kept in the folder too.

    Example: railsearch index compact movies.index
    """
    opened = open_index(index, engine=chosen_engine(engine))
    opened.compact()
    if isinstance(opened, Index):
        opened.prepare_engine()
    report(opened, as_json)


@app.command()
def tune(
    index: IndexFolder,
    *,
    queries: Annotated[
        Path,
        typer.Option(
            help="Sample of query embeddings in random order, like those that will be searched: a .npy array (B, D), "
            "or a table with a column of embeddings. A recall of 0.99 needs about 1,000.",
            show_default=False,
        ),
    ],
    k: Annotated[int, typer.Option("-k", "--k", help="Items that searches will ask for.", min=1)] = 100,
    target_recall: Annotated[
        float, typer.Option(help="Share of the true top k that must be found, on average over queries.")
    ] = 0.99,
    confidence: Annotated[
        float, typer.Option(help="Probability that the chosen strategy reaches the recall for queries like the sample.")
    ] = 0.95,
    embedding_column: EmbeddingColumn = "embedding",
    engine: EngineText = None,
    as_json: Json = False,
) -> None:
    """Measure all strategies on this machine, and keep the cheapest that reaches a recall.

    Searches for this k, with this engine, use the choice unless they are given a --strategy. If no approximate strategy
    is both cheaper and certain to reach the recall, the choice is exact. The choice is stored as a new version.

    Example: railsearch index tune movies.index --queries users.npy -k 100 --target-recall 0.99
    """
    opened = Index.open(index, engine=chosen_engine(engine))
    sample = read_queries(queries, embedding_column=embedding_column)
    shown = False if as_json else None
    report = opened.tune(sample, k, target_recall=target_recall, confidence=confidence, show_progress=shown)
    if as_json:
        print_json({"index": str(opened.path), "version": opened.version, **report.to_dict()})
    else:
        print(report)
        print(f"stored in version {opened.version} of {visible(opened.path)} for k = {k}")


@app.command()
def verify(index: IndexFolder, as_json: Json = False) -> None:
    """Check every byte of every version that is kept; exit with code 1 if something is damaged.

    Each problem names the versions that it affects: one that is not affected can be opened by its number. Tables of
    engines are a cache. They are listed too, but a damaged one is only built again.

    Example: railsearch index verify movies.index
    """
    found = verify_shards(index) if is_split(index) else Index.check(index)
    if as_json:
        print_json({**dataclasses.asdict(found), "is_intact": found.is_intact})
    else:
        versions = ", ".join(map(str, found.versions)) or "none"
        state = "intact" if found.is_intact else f"{len(found.problems)} problems"
        summary = f"{state}: {found.num_files} files, {found.num_bytes:,} bytes, versions {versions}"
        tables = (f"{own.file}: {own.engine}, {own.num_bytes:,} bytes, {own.state}" for own in found.tables)
        for line in (*found.problems, *tables, summary):
            make_console().print(visible(line))
    if not found.is_intact:
        raise typer.Exit(1)


@app.command()
def info(
    index: IndexFolder,
    version: Annotated[int | None, typer.Option(help="Describe an older version that is still kept.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Describe an index: items, segments, version, model and metadata columns.

    Example: railsearch index info movies.index --json
    """
    report(open_index(index, version=version), as_json)


def _as_integers(ids: Sequence[str] | npt.NDArray[np.generic]) -> list[int] | npt.NDArray[np.generic]:
    """Read ids that were given as text, for an index whose ids are integers."""
    if isinstance(ids, np.ndarray):
        return ids
    wrong = next((text for text in ids if not (text.isascii() and text.isdigit())), None)
    if wrong is not None:
        raise InvalidInputError(f"id {wrong!r:.80} is not an integer, but the ids of this index are; give integers.")
    return [int(text) for text in ids]
