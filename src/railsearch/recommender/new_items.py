"""New items of a trained recommender: a table of items is checked, and the model grows by their features."""

import copy
import dataclasses
from typing import TYPE_CHECKING

import torch

from railsearch.data.interactions.columns import read_ids
from railsearch.foundation.errors import IdExistsError, InvalidInputError
from railsearch.foundation.inputs import ArrowTable
from railsearch.models import SequentialModel
from railsearch.recommender.features import read_features
from railsearch.recommender.folder import Ancestor, SavedRecommender, fingerprint_of
from railsearch.recommender.requests import find_rows

if TYPE_CHECKING:
    from polars import DataFrame, Series


def grow(saved: SavedRecommender, table: ArrowTable) -> SavedRecommender:
    """Return a recommender with the items of a table after its own; the given one is not changed.

    Returns the given recommender itself if exactly these items were added before: the call is a repetition.

    Args:
        saved: a recommender whose encoder reads item features.
        table: the new items: their ids in the column `item`, the column of features, and all other columns that the
            items of the model have.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    column = saved.recipe.encoder.item_features
    if column is None:
        raise InvalidInputError(
            "this model knows items by their ids only, so it cannot embed an item that was not there in training; "
            "train it with encoder.item_features, or train it again with the new items."
        )
    given = _as_frame(table)
    ids = _check_ids(given, saved.items["item"])
    features = read_features(given.with_columns(ids), column)  # (n, F)
    item_table = saved.model.encoder.item_table
    if features.shape[1] != item_table.feature_dim:
        raise InvalidInputError(
            f"column {column!r} has {features.shape[1]} numbers for each item but the model takes "
            f"{item_table.feature_dim}; compute them as for the training items."
        )
    items = pl.DataFrame([ids, *_check_columns(given.drop(column, "item"), saved.items)])
    if _is_repetition(saved, items, item_table.standardize(features)):
        return saved
    _check_are_new(ids, saved.items["item"])
    model: SequentialModel = copy.deepcopy(saved.model, {id(item_table): item_table.grown(features)})
    known = pl.concat([saved.items, items.select(saved.items.columns)])
    counts = saved.item_counts
    return dataclasses.replace(
        saved,
        model=model,
        items=known,
        item_counts=None if counts is None else torch.cat([counts, counts.new_zeros(len(items))]),
        fingerprint=fingerprint_of(model, known),
        ancestors=(*saved.ancestors, Ancestor(saved.fingerprint, len(saved.items))),
    )


def _as_frame(table: object) -> "DataFrame":
    import polars as pl  # noqa: PLC0415

    if not isinstance(table, pl.DataFrame) and not hasattr(table, "__arrow_c_stream__"):
        raise InvalidInputError(f"items is a {type(table).__name__}; give a table with an Arrow interface.")
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
    if "item" not in frame.columns:
        raise InvalidInputError(f"items has no column 'item' with ids; its columns are: {', '.join(frame.columns)}.")
    if not len(frame):
        raise InvalidInputError("items has 0 rows; give at least one new item.")
    return frame


def _check_ids(given: "DataFrame", known: "Series") -> "Series":
    """Return the ids of the new items, in the type of the known ones."""
    import polars as pl  # noqa: PLC0415

    ids = read_ids(given["item"])
    if ids.null_count():
        raise InvalidInputError(f"items has no id in row {ids.is_null().arg_true()[0]}; give one.")
    if ids.dtype != known.dtype and not (ids.dtype.is_integer() and known.dtype.is_integer()):
        raise InvalidInputError(f"items has {ids.dtype} ids but the model has {known.dtype} ones; give the same type.")
    try:
        ids = ids.cast(known.dtype)
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(f"items has ids that are no {known.dtype}, the type of the model's ids.") from error
    if ids.is_duplicated().any():
        twice = ids.filter(ids.is_duplicated())[0]
        raise InvalidInputError(f"items has {twice!r} more than once; give every item one row.")
    if known.dtype.is_signed_integer() and bool((known >= 0).all()) and bool((ids < 0).any()):
        raise InvalidInputError(
            f"items has id {ids.min()!r} but all ids of the model are 0 or more, as in its index; give such an id."
        )
    return ids.alias("item")


def _check_columns(given: "DataFrame", known: "DataFrame") -> "DataFrame":
    """Return the other columns of new items, in the types of the model's columns."""
    import polars as pl  # noqa: PLC0415

    wanted = {name: kind for name, kind in known.schema.items() if name != "item"}
    if set(given.columns) != set(wanted):
        found = ", ".join(sorted(given.columns)) or "none"
        raise InvalidInputError(
            f"items has the other columns {found} but the model has {', '.join(sorted(wanted)) or 'none'}; give the "
            "columns of the training items."
        )
    try:
        return given.select(pl.col(name).cast(kind) for name, kind in wanted.items())
    except pl.exceptions.PolarsError as error:
        cause = str(error).partition("\n")[0]
        raise InvalidInputError(f"items has a column of another type than in the model ({cause}).") from error


def _is_repetition(saved: SavedRecommender, items: "DataFrame", features: torch.Tensor) -> bool:
    """Return whether exactly these items, with the same columns and features, were added after training."""
    if not saved.ancestors:
        return False
    rows = find_rows(items["item"], saved.items["item"])  # (n,)
    if int(rows.min()) < saved.ancestors[0].num_items:
        return False
    stored = saved.model.encoder.item_table.features
    assert stored is not None
    same_columns = saved.items[rows.numpy()].equals(items.select(saved.items.columns))
    return same_columns and torch.allclose(stored[rows], features, rtol=1e-4, atol=1e-6)


def _check_are_new(ids: "Series", known: "Series") -> None:
    is_known = find_rows(ids, known) >= 0  # (n,)
    if bool(is_known.any()):
        first = ids[int(is_known.nonzero()[0])]
        raise IdExistsError(
            f"item {first!r} is already in the model ({int(is_known.sum()):,} of the {len(ids):,} items are); give new "
            "items only, or train again to change the features of known ones."
        )
