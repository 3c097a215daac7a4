"""`railsearch search`: the best items for each query, with their certificates."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from polars import DataFrame
from rich.console import Console
from torch import Tensor

from railsearch.cli.batch import check_no_batch, print_report
from railsearch.cli.options import (
    EmbeddingColumn,
    EngineText,
    IndexFolder,
    Json,
    OnRay,
    OutputFolder,
    RayAddress,
    RowsPerPart,
    StrategyText,
    chosen_engine,
    chosen_runner,
    chosen_strategy,
)
from railsearch.cli.story import heat_map
from railsearch.cli.terminal import make_console, make_frame_table, print_json, visible
from railsearch.data import read_queries
from railsearch.distributed.batch import search_file
from railsearch.distributed.batch.job import ROWS_PER_PART
from railsearch.distributed.opening import open_index
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import rows_as_json
from railsearch.foundation.matched_parts import END, SNIPPET, START, TEXT
from railsearch.foundation.results import NO_ITEM, Explanation, SearchResult
from railsearch.text_retriever import TextRetriever


def search(
    index: IndexFolder,
    *,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Query embeddings: a .npy array (B, D), or a table with a column of embeddings.", show_default=False
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="A question, if the index holds passages. May be repeated.", show_default=False),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The text model that built the index, for --text; only needed if its folder was moved.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Items to find for each query.", min=1)] = 10,
    strategy: StrategyText = None,
    allow: Annotated[
        str | None,
        typer.Option(
            help="Search only items whose metadata satisfies this condition: comparisons of columns (= != < <= > >=, "
            "IN, BETWEEN, LIKE, IS NULL) joined by AND, OR and NOT.",
            show_default=False,
        ),
    ] = None,
    row: Annotated[
        list[int] | None,
        typer.Option(help="Search only this row of the queries. May be repeated.", min=0, show_default=False),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show gate weights and component scores of the best item of each query.")
    ] = False,
    pad: Annotated[bool, typer.Option("--pad", help="Return fewer than k items if --allow leaves fewer.")] = False,
    embedding_column: EmbeddingColumn = "embedding",
    engine: EngineText = None,
    version: Annotated[int | None, typer.Option(help="Search an older version that is still kept.", min=1)] = None,
    verify: Annotated[
        str,
        typer.Option(
            help="Check all bytes of the index at once (full), or each block before its first use (lazy), which opens "
            "a large index sooner."
        ),
    ] = "full",
    output: OutputFolder = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            help="Column with the ids of the queries, for --output; by default id if there is one, otherwise rows are "
            "numbered.",
            show_default=False,
        ),
    ] = None,
    rows_per_part: RowsPerPart = None,
    on_ray: OnRay = False,
    ray_address: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Find the best items for each query, and certify the answer.

    An answer is certified exact if no item that was not scored can have a better score. Otherwise the gap is the
    most by which the true k-th score can exceed the returned one.

    Example: railsearch search movies.index --queries users.npy -k 5 --allow "year >= 1990 AND genre = 'Drama'"

    With --output, the queries may be more than memory holds. The certificate of each query is in the results.

    If the passages are long and cut into windows, passage_start, passage_end and snippet show the characters of a
    passage that matched, in place of the whole passage.

    Example: railsearch search passages.index --text "does medicare pay for hearing aids?"

    Example: railsearch search movies.index --queries users.parquet -k 100 --output results --ray
    """
    if (queries is None) == (not text):
        raise InvalidInputError("give either --queries with embeddings or --text with a question.")
    chosen = chosen_strategy(strategy)
    runner = chosen_runner(on_ray=on_ray, address=ray_address)
    if output is None:
        check_no_batch(("--ray", runner), ("--id-column", id_column), ("--rows-per-part", rows_per_part))
    else:
        if queries is None or row or explain:
            raise InvalidInputError("--output takes all of --queries; omit --text, --row and --explain.")
        report = search_file(
            index,
            queries,
            output,
            k,
            strategy=chosen,
            allow=allow,
            pad=pad,
            version=version,
            engine=chosen_engine(engine),
            verify=verify,
            embedding_column=embedding_column,
            id_column=id_column,
            rows_per_part=rows_per_part or ROWS_PER_PART,
            runner=runner,
            show_progress=False if as_json else None,
        )
        print_report(report, as_json=as_json)
        return
    opened = open_index(index, version=version, engine=chosen_engine(engine), verify=verify)
    embeddings: Tensor | npt.NDArray[np.generic]
    if text:
        embeddings = TextRetriever.load_beside(opened, model).encode_queries(text, show_progress=False)
    else:
        assert queries is not None
        embeddings = read_queries(queries, embedding_column=embedding_column)
    rows = row or list(range(len(embeddings)))
    if rows and max(rows) >= len(embeddings):
        source = "--text" if queries is None else queries
        raise InvalidInputError(f"row is {max(rows)} but {source} has {len(embeddings)} rows; rows count from 0.")
    result = opened.search(embeddings[rows], k, chosen, allow=allow, pad=pad)
    if text:
        result = dataclasses.replace(result, questions=[text[own] for own in rows])
    explanations: list[Explanation | None] = [None] * len(rows)
    if explain:
        best = [items[0] for items in (result.keys if opened.has_keys else result.ids.tolist())]
        explanations = [
            None if item in (None, NO_ITEM) else opened.explain(embeddings[own], item)
            for own, item in zip(rows, best, strict=True)
        ]
    if as_json:
        answers = _as_json(result, rows, explanations)
        if text:
            answers = [{**answer, "text": text[own]} for answer, own in zip(answers, rows, strict=True)]
        print_json({"index": str(opened.path), "version": opened.version, "queries": answers})
    else:
        titles = [text[own] if text else f"query {own}" for own in rows]
        _print(result, titles, explanations, len(opened), make_console(wraps=True))


def _as_json(result: SearchResult, rows: list[int], explanations: list[Explanation | None]) -> list[dict[str, object]]:
    by_query = _by_query(result)
    answers: list[dict[str, object]] = []
    for place, (row, explanation) in enumerate(zip(rows, explanations, strict=True)):
        gap = float(result.gap[place])
        answer: dict[str, object] = {
            "row": row,
            "items": rows_as_json(by_query[place]) if place in by_query else [],
            "is_exact": bool(result.is_exact[place]),
            "gap": gap if math.isfinite(gap) else None,
            "num_certified": int(result.num_certified[place]),
            "num_scored": int(result.num_scored[place]),
        }
        if explanation is not None:
            answer["explanation"] = {
                "id": explanation.item_id,
                "score": explanation.score,
                "component_scores": explanation.component_scores.tolist(),
                "gate_weights": explanation.gate_weights.tolist(),
            }
        answers.append(answer)
    return answers


def _print(
    result: SearchResult,
    titles: list[str],
    explanations: list[Explanation | None],
    num_items: int,
    console: Console,
) -> None:
    by_query = _by_query(result)
    for place, (title, explanation) in enumerate(zip(titles, explanations, strict=True)):
        own = by_query.get(place, _shown(result)[:0].drop("query"))
        console.print(make_frame_table(own, title=title))
        scored = f"{int(result.num_scored[place]):,} of {num_items:,} items scored"
        console.print(f"  {_certificate(result, place)}; {scored}", soft_wrap=True)
        if explanation is not None:
            console.print(
                f"  why item {visible(explanation.item_id)}: gate weight x component score of each component pair"
            )
            weights, scores = explanation.gate_weights.tolist(), explanation.component_scores.tolist()
            console.print(heat_map(weights, scores, is_ascii=console.options.ascii_only), soft_wrap=True)


def _shown(result: SearchResult) -> DataFrame:
    """Return the table of results; a snippet takes the place of a passage that may be a book."""
    frame = result.to_frame()
    has_part = {TEXT, START, END, SNIPPET} <= set(frame.columns)
    return frame.drop(TEXT) if has_part else frame


def _by_query(result: SearchResult) -> dict[int, DataFrame]:
    """Return the items of each query that has any."""
    parts = _shown(result).partition_by("query", as_dict=True)
    return {int(key[0]): part.drop("query") for key, part in parts.items()}


def _certificate(result: SearchResult, place: int) -> str:
    if bool(result.is_exact[place]):
        return "certified exact"
    gap = float(result.gap[place])
    if not math.isfinite(gap):
        return "not certified: this strategy or engine has no bound"
    num_certified = int(result.num_certified[place])
    return f"the true k-th score is at most {gap:.4f} higher; {num_certified} of the items are certainly right"
