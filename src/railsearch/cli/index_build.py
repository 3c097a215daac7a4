"""`railsearch index build`: a new index from embeddings, passages or a recommender, in one folder or in shards."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.batch import encode_in_parts
from railsearch.cli.options import (
    EmbeddingColumn,
    EngineText,
    IdColumn,
    IdsFile,
    IndexFolder,
    Json,
    MetadataFile,
    OnRay,
    OptionalItemsFile,
    PassagesFile,
    RayAddress,
    chosen_engine,
    chosen_runner,
)
from railsearch.cli.shard import build_split
from railsearch.cli.summary import report
from railsearch.data import read_items, read_passage_texts
from railsearch.encoders import Side
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Index, Precision, ScanPrecision
from railsearch.loading import a_kind, load
from railsearch.recommender import Recommender
from railsearch.similarity import Similarity
from railsearch.text_retriever import TextRetriever


def build(
    index: IndexFolder,
    *,
    model: Annotated[
        Path,
        typer.Option(help="Model folder, of a similarity, a text retriever or a recommender.", show_default=False),
    ],
    items: OptionalItemsFile = None,
    passages: PassagesFile = None,
    ids: IdsFile = None,
    metadata: MetadataFile = None,
    precision: Annotated[Precision, typer.Option(help="Precision of the stored item components.")] = Precision.FP32,
    scan: Annotated[
        ScanPrecision, typer.Option(help="Scan of the first stage; int8 is faster, with the same results.")
    ] = ScanPrecision.FULL,
    id_column: IdColumn = "id",
    embedding_column: EmbeddingColumn = "embedding",
    engine: EngineText = None,
    parts: Annotated[
        Path | None,
        typer.Option(
            help="Encode --passages in parts, into this folder; if the build is interrupted, a second run encodes only "
            "the missing parts. With --ray, by default the name of the index with .parts after it.",
            show_default=False,
        ),
    ] = None,
    on_ray: OnRay = False,
    ray_address: RayAddress = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            help="Write a split index of this many shards; with --ray, they are built in parallel.",
            min=1,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute the item side of every item once, and write a new index folder.

    Items are read in batches, so they need not fit into memory. An interrupted build leaves no folder behind.

    With --engine, the tables of that engine are built and kept in the folder too, so that the first search with it
    does not wait for them.

    Example: railsearch index build movies.index --model my-model --items movies.parquet --precision fp16

    Example: railsearch index build answers.index --model runs/insuranceqa/mol/model --passages answers.jsonl

    Example: railsearch index build answers.index --model runs/insuranceqa/mol/model --passages answers.jsonl --ray

    Example: railsearch index build movies.index --model my-model --items movies.parquet --engine "Faiss(hnsw)"

    Example: railsearch index build movies.index --model runs/ml-1m/hstu-mol/model

    Example: railsearch index build shards/ --model my-model --items movies.parquet --shards 8 --ray
    """
    chosen = chosen_engine(engine)
    if items is not None and passages is not None:
        raise InvalidInputError("give either --items with embeddings or --passages with texts, not both.")
    runner = chosen_runner(on_ray=on_ray, address=ray_address)
    in_parts = runner is not None or parts is not None
    if in_parts and passages is None and (shards is None or parts is not None):
        raise InvalidInputError("--parts needs --passages, and --ray needs --passages or --shards; add one or omit it.")
    loaded = load(model)
    if shards is not None:
        if chosen is not None:
            raise InvalidInputError("give either --engine or --shards; every shard builds its tables when it searches.")
        split = build_split(
            index, loaded, shards, items=items, ids=ids, metadata=metadata, id_column=id_column,
            embedding_column=embedding_column, precision=precision, scan=scan, runner=runner,
            show_progress=False if as_json else None,
        )  # fmt: skip
        report(split, as_json)
        return
    if isinstance(loaded, Recommender) and items is None and passages is None:
        built = loaded.build_index(
            index, precision=precision, scan=scan, engine=chosen, show_progress=False if as_json else None
        )
        built.prepare_engine()
        report(built, as_json)
        return
    if items is None and passages is None:
        raise InvalidInputError("give either --items with embeddings or --passages with texts; recommenders need none.")
    if passages is not None:
        check_own_ids(ids, metadata)
        if not isinstance(loaded, TextRetriever):
            raise InvalidInputError(f"--passages needs a text retriever but {model} holds {a_kind(loaded)}.")
        if in_parts:
            built, encoding = encode_in_parts(
                index, model, passages, parts=parts, precision=precision, scan=scan, engine=chosen, runner=runner,
                show_progress=False if as_json else None,
            )  # fmt: skip
            report(built, as_json, {"encoding": encoding})
            return
        retriever = loaded
        texts = read_passage_texts(passages)
        started = time.perf_counter()
        built = retriever.build_index(
            texts, index, precision=precision, scan=scan, show_progress=False if as_json else None
        )
        seconds = time.perf_counter() - started
        if chosen is not None:
            Index.open(index, engine=chosen).prepare_engine()
        rate = len(texts) / seconds
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"  # books take seconds each
        encoding = f"{shown} passages per second; {describe_lengths(retriever, texts)}"
        report(built, as_json, {"encoding": encoding})
        return
    assert items is not None
    batches = read_items(items, ids=ids, metadata=metadata, id_column=id_column, embedding_column=embedding_column)
    if not isinstance(loaded, Similarity):
        raise InvalidInputError(f"--items needs a similarity but {model} holds {a_kind(loaded)}.")
    built = Index.build(loaded, batches, path=index, precision=precision, scan=scan, engine=chosen)
    built.prepare_engine()
    report(built, as_json)


def describe_lengths(retriever: TextRetriever, texts: Mapping[str, str]) -> str:
    """Return what happened to passages that are longer than the encoder takes."""
    encoder = retriever.model.encoder
    if encoder.has_windows:
        return f"those longer than {encoder.max_passage_length} tokens were cut into windows"
    num_cut = encoder.count_cut(list(texts.values()), Side.PASSAGE)
    return f"{num_cut:,} of them are longer than {encoder.max_passage_length} tokens and were truncated"


def check_own_ids(ids: Path | None, metadata: Path | None) -> None:
    """Refuse ids and metadata beside a file of passages."""
    if ids is not None or metadata is not None:
        raise InvalidInputError(
            "--ids and --metadata belong to --items; omit them, because the file of --passages has its own ids."
        )
