"""`railsearch search`: the best items of each query, with what is certain about them."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from railsearch.cli.options import EmbeddingColumn, IndexFolder, Json
from railsearch.cli.story import heat_map
from railsearch.data import read_queries
from railsearch.errors import InvalidInputError
from railsearch.index import Index, parse_strategy
from railsearch.types import Explanation, SearchResult


def search(
    index: IndexFolder,
    *,
    queries: Annotated[
        Path,
        typer.Option(
            help="Query embeddings: a .npy array (B, D), or a table with a column of embeddings.", show_default=False
        ),
    ],
    k: Annotated[int, typer.Option("-k", "--k", help="Items to find for each query.", min=1)] = 10,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Such as TwoPass, Average(500) or Combined(5,200); by default what tune chose.", show_default=False
        ),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(help="Only items whose metadata satisfy this condition, written as in SQL.", show_default=False),
    ] = None,
    row: Annotated[
        list[int] | None, typer.Option(help="Only this row of the queries; may be repeated.", min=0, show_default=False)
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which components met, for the best item of each query.")
    ] = False,
    pad: Annotated[bool, typer.Option("--pad", help="Give fewer than k where --allow leaves fewer.")] = False,
    embedding_column: EmbeddingColumn = "embedding",
    version: Annotated[int | None, typer.Option(help="An older version that is still kept.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Find the best items of each query, and say how sure that is.

    An answer is certified exact where no item that was not scored could be better. Otherwise the gap says how much
    better the true k-th item could be at the most.

    Example: railsearch search movies.index --queries users.npy -k 5 --allow "year >= 1990 AND genre = 'Drama'"
    """
    chosen = None if strategy is None else parse_strategy(strategy)
    embeddings = read_queries(queries, embedding_column=embedding_column)
    rows = row or list(range(len(embeddings)))
    if rows and max(rows) >= len(embeddings):
        raise InvalidInputError(f"row is {max(rows)} but {queries} has {len(embeddings)} rows; rows count from 0.")
    opened = Index.open(index, version=version)
    result = opened.search(embeddings[rows], k, chosen, allow=allow, pad=pad)
    explanations: list[Explanation | None] = [None] * len(rows)
    if explain:
        best = result.ids[:, 0].tolist()
        explanations = [
            opened.explain(embeddings[own], item) if item >= 0 else None for own, item in zip(rows, best, strict=True)
        ]
    if as_json:
        answers = _as_json(result, rows, explanations)
        print(json.dumps({"index": str(opened.path), "version": opened.version, "queries": answers}, indent=2))
    else:
        _print(result, rows, explanations, len(opened), Console(markup=False))


def _as_json(result: SearchResult, rows: list[int], explanations: list[Explanation | None]) -> list[dict[str, object]]:
    frame = result.to_frame()
    answers: list[dict[str, object]] = []
    for place, (row, explanation) in enumerate(zip(rows, explanations, strict=True)):
        gap = float(result.gap[place])
        answer: dict[str, object] = {
            "row": row,
            "items": json.loads(frame.filter(frame["query"] == place).drop("query").write_json()),
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
    result: SearchResult, rows: list[int], explanations: list[Explanation | None], num_items: int, console: Console
) -> None:
    frame = result.to_frame()
    for place, (row, explanation) in enumerate(zip(rows, explanations, strict=True)):
        own = frame.filter(frame["query"] == place).drop("query")
        table = Table(title=f"query {row}", title_justify="left")
        for name in own.columns:
            table.add_column(name, justify="right" if name in {"rank", "id", "score"} else "left")
        for values in own.iter_rows():
            table.add_row(*(Text(f"{value:.4f}" if isinstance(value, float) else str(value)) for value in values))
        console.print(table)
        scored = f"{int(result.num_scored[place]):,} of {num_items:,} items scored"
        console.print(f"  {_certificate(result, place)}; {scored}", soft_wrap=True)
        if explanation is not None:
            console.print(f"  why item {explanation.item_id}: weight x score of each pair of components")
            weights, scores = explanation.gate_weights.tolist(), explanation.component_scores.tolist()
            console.print(heat_map(weights, scores), soft_wrap=True)


def _certificate(result: SearchResult, place: int) -> str:
    if bool(result.is_exact[place]):
        return "certified exact"
    gap = float(result.gap[place])
    if not math.isfinite(gap):
        return "not certified: this strategy or engine gives no bound"
    num_certified = int(result.num_certified[place])
    return f"the true last score is at most {gap:.4f} better; {num_certified} of the items are certainly right"
