"""Features of items: a column of the items table with a list of numbers for each item, as a checked tensor."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.data import Interactions
from railsearch.foundation.errors import InvalidInputError
from railsearch.recommender.recipe import Recipe

if TYPE_CHECKING:
    from polars import DataFrame, Series


def features_of(recipe: Recipe, interactions: Interactions) -> Tensor | None:
    """Return the features (N, F) that a recipe names, of all items; None if it names none."""
    column = recipe.encoder.item_features
    if column is None:
        return None
    return read_features(interactions.items_table(), column)


def items_of(recipe: Recipe, interactions: Interactions) -> "DataFrame":
    """Return the items and their columns, without the features, which the model itself keeps."""
    items = interactions.items_table()
    column = recipe.encoder.item_features
    return items if column is None else items.drop(column)


def read_features(items: "DataFrame", column: str) -> Tensor:
    """Return a column of features as one row of numbers for each item (N, F).

    Args:
        items: a table with the ids of items in the column `item`.
        column: a column of lists or arrays of numbers, all of one length.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    if column not in items.columns or column == "item":
        others = ", ".join(name for name in items.columns if name != "item") or "none"
        raise InvalidInputError(
            f"encoder.item_features is {column!r} but the table of items has no such column; its columns are: "
            f"{others}. Give a table of items with this column."
        )
    values, ids = items[column], items["item"]
    kind = values.dtype
    if not isinstance(kind, (pl.List, pl.Array)) or not kind.inner.is_numeric():
        raise InvalidInputError(
            f"column {column!r} holds {kind} values; give a list of numbers for each item, such as an embedding."
        )
    lists = values.arr.to_list() if isinstance(kind, pl.Array) else values
    _refuse(ids, lists.is_null(), column, "has no value", "give features for every item")
    lengths = lists.list.len()
    size = int(lengths[0])
    _refuse(
        ids, lengths != size, column, f"differs in length from the first item, which has {size} numbers",
        "give every item the same number of features",
    )  # fmt: skip
    if not size:
        raise InvalidInputError(f"column {column!r} holds empty lists; give at least one number for each item.")
    flat = lists.explode().cast(pl.Float32, strict=False)
    features = torch.from_numpy(flat.fill_null(float("nan")).to_numpy(writable=True)).view(len(items), size)  # (N, F)
    is_bad = ~features.isfinite().all(dim=1)  # (N,)
    _refuse(ids, pl.Series(is_bad.numpy()), column, "has a value that is missing or not finite", "correct it")
    return features


def _refuse(ids: "Series", is_bad: "Series", column: str, fault: str, remedy: str) -> None:
    """Raise an error about the first item that is bad, if any."""
    bad = is_bad.arg_true()
    if len(bad):
        raise InvalidInputError(
            f"column {column!r} of item {ids[bad[0]]!r} {fault} ({len(bad):,} such items of {len(ids):,}); {remedy}."
        )
