"""`railsearch index`: make an index folder, change it, and look after it."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from railsearch.cli.options import (
    EmbeddingColumn,
    IdColumn,
    IdsFile,
    IndexFolder,
    ItemsFile,
    Json,
    MetadataFile,
    OptionalItemsFile,
)
from railsearch.data import read_array, read_items, read_passage_texts
from railsearch.encoders import Side
from railsearch.folders.similarity_folder import load_similarity
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Index, Precision
from railsearch.text_retriever import TextRetriever

app = typer.Typer(
    name="index",
    help="Make an index folder, change it, and look after it. Every change is a commit: once the command is done it "
    "is durable, and if it is killed the version before is there.",
    no_args_is_help=True,
)


@app.command()
def build(
    index: IndexFolder,
    *,
    model: Annotated[
        Path,
        typer.Option(help="The model folder: what save_similarity or TextRetriever.save wrote.", show_default=False),
    ],
    items: OptionalItemsFile = None,
    passages: Annotated[
        Path | None,
        typer.Option(
            help="Passages to encode with a text model: JSON lines with an id and a text.", show_default=False
        ),
    ] = None,
    ids: IdsFile = None,
    metadata: MetadataFile = None,
    precision: Annotated[Precision, typer.Option(help="How item components are kept.")] = Precision.FP32,
    id_column: IdColumn = "id",
    embedding_column: EmbeddingColumn = "embedding",
    as_json: Json = False,
) -> None:
    """Compute the item side of every item, once, and write it as a new index folder.

    Items are read batch by batch, so that they may be more than memory holds. A build that is cut short leaves no
    folder behind.

    Example: railsearch index build movies.index --model my-model --items movies.parquet --precision fp16

    Example: railsearch index build answers.index --model runs/insuranceqa/mol/model --passages answers.jsonl
    """
    if (items is None) == (passages is None):
        raise InvalidInputError("give either --items with embeddings or --passages with texts.")
    if passages is not None:
        if ids is not None or metadata is not None:
            raise InvalidInputError("--ids and --metadata go with --items; passages have their ids in their own file.")
        retriever = TextRetriever.load(model)
        texts = read_passage_texts(passages)
        started = time.perf_counter()
        built = retriever.build_index(texts, index, precision=precision, show_progress=False if as_json else None)
        seconds = time.perf_counter() - started
        encoder = retriever.model.encoder
        num_cut = encoder.count_cut(list(texts.values()), Side.PASSAGE)
        encoding = f"{len(texts) / seconds:,.0f} passages a second; {num_cut:,} of them are longer than "
        _report(built, as_json, {"encoding": f"{encoding}{encoder.max_passage_length} tokens and lost their end"})
        return
    assert items is not None
    batches = read_items(items, ids=ids, metadata=metadata, id_column=id_column, embedding_column=embedding_column)
    built = Index.build(load_similarity(model), batches, path=index, precision=precision)
    _report(built, as_json)


@app.command()
def add(
    index: IndexFolder,
    *,
    items: ItemsFile,
    ids: IdsFile = None,
    metadata: MetadataFile = None,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace items whose ids are there already.")] = False,
    id_column: IdColumn = "id",
    embedding_column: EmbeddingColumn = "embedding",
    as_json: Json = False,
) -> None:
    """Add items; with --upsert, in the place of those that have their ids.

    Example: railsearch index add movies.index --items new-movies.parquet --upsert
    """
    opened = Index.open(index)
    batches = read_items(items, ids=ids, metadata=metadata, id_column=id_column, embedding_column=embedding_column)
    if upsert:
        opened.upsert(batches)
    else:
        opened.add(batches)
    _report(opened, as_json)


@app.command()
def remove(
    index: IndexFolder,
    item_ids: Annotated[list[int] | None, typer.Argument(help="Ids of items to remove.", show_default=False)] = None,
    ids: IdsFile = None,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="Pass over ids that are not there.")] = False,
    as_json: Json = False,
) -> None:
    """Remove items by their ids.

    Example: railsearch index remove movies.index 17 42
    """
    if (ids is None) == (not item_ids):
        raise InvalidInputError("say which items to remove: give ids, or a file of them with --ids.")
    opened = Index.open(index)
    opened.remove(read_array(ids) if ids is not None else item_ids or [], missing_ok=missing_ok)
    _report(opened, as_json)


@app.command()
def compact(index: IndexFolder, as_json: Json = False) -> None:
    """Write all items anew without those that were removed; searches get faster after many changes.

    Example: railsearch index compact movies.index
    """
    opened = Index.open(index)
    opened.compact()
    _report(opened, as_json)


@app.command()
def verify(index: IndexFolder, as_json: Json = False) -> None:
    """Read every byte of every version that is kept; exit with 1 where something is wrong.

    Example: railsearch index verify movies.index
    """
    found = Index.check(index)
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "is_intact": found.is_intact}, indent=2))
    else:
        for problem in found.problems:
            print(problem)
        versions = ", ".join(map(str, found.versions)) or "none"
        state = "intact" if found.is_intact else f"{len(found.problems)} problems"
        print(f"{state}: {found.num_files} files, {found.num_bytes:,} bytes, versions {versions}")
    if not found.is_intact:
        raise typer.Exit(1)


@app.command()
def info(
    index: IndexFolder,
    version: Annotated[int | None, typer.Option(help="An older version that is still kept.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Say what an index holds.

    Example: railsearch index info movies.index --json
    """
    _report(Index.open(index, version=version), as_json)


def _report(index: Index, as_json: bool, more: dict[str, str] | None = None) -> None:
    described = {**index.describe(), **(more or {})}
    if as_json:
        print(json.dumps(described, indent=2))
        return
    table = Table(show_header=False, box=None)
    for name, value in described.items():
        shown = f"{value:,}" if isinstance(value, int) else ", ".join(value) if isinstance(value, list) else str(value)
        table.add_row(name.replace("_", " "), shown)
    Console(markup=False).print(table)
