"""Items by the names that users know: their ids in an index, and a table of similar ones."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Allow, Index
from railsearch.index.keys import NOT_FOUND
from railsearch.recommender.answers import index_ids, to_table
from railsearch.recommender.requests import as_series, find_rows

if TYPE_CHECKING:
    from polars import DataFrame, Series


def find_similar(
    index: Index,
    items: "DataFrame",
    item_ids: object,
    k: int,
    *,
    exclude: Iterable[object] | None,
    allow: Allow,
    pad: bool,
) -> "DataFrame":
    """Return the k most similar items of each item; see `Recommender.similar_items`.

    Args:
        index: holds the items.
        items: the items of the model.
        item_ids: one item, or a list of them.
        k: the number of similar items for each.
        exclude: items that are never returned.
        allow: as in `Index.search`.
        pad: accept fewer than k items.
    """
    is_one = isinstance(item_ids, (int, str, np.generic))
    names = as_series([item_ids] if is_one else item_ids, "item_ids").alias("item")
    if not len(names):
        raise InvalidInputError("item_ids is empty; give at least one item.")
    own = find_items(index, items, names)  # (B,)
    is_missing = (index.find(own) if len(own) else own) == NOT_FOUND  # (B,)
    if bool(is_missing.any()):
        missing = names[int(is_missing.nonzero()[0])]
        raise InvalidInputError(f"item {missing!r} is not among the {len(index)} items of the index.")
    if isinstance(exclude, Mapping):
        raise InvalidInputError("exclude is a mapping; give a list of items that are never returned.")
    others = None if exclude is None else find_items(index, items, as_excluded(exclude, "exclude"))  # (n,)
    found = index.similar_items(own, k, exclude=others, allow=allow, pad=pad)
    table = to_table(found, names, items["item"], index_ids(items))
    return table.rename({"item": "similar", "user": "item"})


def as_excluded(values: object, name: str) -> "Series":
    """Return items to exclude as a series; refuse None and lists within the list, which are no items."""
    found = as_series(values, name)
    if found.null_count():
        raise InvalidInputError(f"{name}[{found.is_null().arg_max()}] is None, which is no item; remove it.")
    if found.dtype.is_nested():
        raise InvalidInputError(f"{name}[0] is {found.to_list()[0]!r:.80}; give ids of items, not lists of them.")
    return found


def find_items(index: Index, items: "DataFrame", names: "Series") -> Tensor:
    """Return the id in the index of each item (n,); -1 if neither the model nor the index knows it."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    rows = find_rows(names, items["item"])  # (n,)
    found = index_ids(items)[rows.clamp_min(0)].masked_fill(rows < 0, NOT_FOUND)  # (n,)
    metadata = index.metadata if bool((rows < 0).any()) else None
    if metadata is None or "item" not in metadata.columns:
        return found
    added = pl.DataFrame({"item": metadata["item"], "id": index.ids.numpy(force=True)}).sort("item")
    own_rows = find_rows(names, added["item"])  # (n,): items that were added after the model was trained
    by_name = torch.from_numpy(added["id"].to_numpy(writable=True))  # (M,)
    return torch.where((rows < 0) & (own_rows >= 0), by_name[own_rows.clamp_min(0)], found)
