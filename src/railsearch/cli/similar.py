"""`railsearch similar`: the items that are most similar to an item, for product pages."""

from pathlib import Path
from typing import Annotated

import typer
from polars import DataFrame

from railsearch.cli.options import EngineText, ExcludedItems, Json, chosen_engine, ids_of
from railsearch.cli.terminal import make_console, make_frame_table, print_json
from railsearch.distributed import ShardedIndex
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import rows_as_json
from railsearch.index import Index
from railsearch.loading import a_kind, load
from railsearch.recommender import Recommender


def similar(
    folder: Annotated[
        Path,
        typer.Argument(help="An index folder, whole or split, or the folder of a recommender.", show_default=False),
    ],
    items: Annotated[list[str], typer.Argument(help="Ids of items.", show_default=False)],
    *,
    k: Annotated[int, typer.Option("-k", "--k", help="Similar items for each item.", min=1)] = 10,
    exclude: ExcludedItems = None,
    allow: Annotated[
        str | None,
        typer.Option(help='Only items whose columns meet this condition: "year >= 1990".', show_default=False),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            help="Index of a recommender's items, built by index build --model; in memory if omitted.",
            show_default=False,
        ),
    ] = None,
    engine: EngineText = None,
    pad: Annotated[
        bool, typer.Option("--pad", help="Return fewer than k items if --exclude and --allow leave fewer.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the items that are most similar to each item, by the mean cosine of their components.

    The answer is the exact top K of one scan over all components.

    Example: railsearch similar movies.index 260 -k 5 --allow "year >= 1990"

    Example: railsearch similar runs/ml-1m/hstu-mol/model 260 1196 --exclude 1210,1240
    """
    if index is None and engine is not None:
        raise InvalidInputError("--engine searches an index of a recommender; add --index, or omit --engine.")
    excluded = None if exclude is None else ids_of(exclude)
    opened = load(folder)
    if isinstance(opened, Recommender):
        if index is not None:
            opened.open_index(index, engine=chosen_engine(engine))
        found = opened.similar_items(items, k, exclude=excluded, allow=allow, pad=pad)
        taken = {name: f"{name}_of_item" for name in found.columns if name != "item"}  # an item may have such columns
        columns = opened.items.rename(taken, strict=False).rename({"item": "similar"})
        table = found.join(columns, on="similar", how="left", maintain_order="left")
    elif isinstance(opened, (Index, ShardedIndex)):
        if index is not None:
            raise InvalidInputError(f"{folder} is an index itself; omit --index.")
        table = _of_index(opened, items, k, excluded, allow, pad=pad)
    else:
        raise InvalidInputError(f"{folder} holds {a_kind(opened)}; give an index or a recommender.")
    if as_json:
        print_json({"folder": str(folder), "similar": rows_as_json(table)})
    else:
        make_console().print(make_frame_table(table, has_box=False))


def _of_index(
    index: Index | ShardedIndex, items: list[str], k: int, exclude: list[str] | None, allow: str | None, *, pad: bool
) -> DataFrame:
    """Return the similar items of an index as a table, with the columns of its metadata."""
    ids = items if index.has_keys else _integers(items, "ITEMS")
    others = exclude if index.has_keys or exclude is None else _integers(exclude, "--exclude")
    result = index.similar_items(ids, k, exclude=others, allow=allow, pad=pad)
    frame = result.to_frame()
    names = DataFrame({"query": range(len(ids)), "similar_to": ids}, schema_overrides={"query": frame.schema["query"]})
    return names.join(frame, on="query", how="inner", maintain_order="left").drop("query")


def _integers(texts: list[str], name: str) -> list[int]:
    wrong = next((text for text in texts if not (text.isascii() and text.isdigit() and len(text) < 19)), None)
    if wrong is not None:
        raise InvalidInputError(
            f"{name} holds {wrong!r:.80} but the ids of this index are integers; give integers, or, if a recommender "
            "built it, its model folder in place of the index: it knows items by their names."
        )
    return [int(text) for text in texts]
