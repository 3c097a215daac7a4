"""From search results to a table of recommendations; check that every request has enough items left."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.foundation.errors import NotEnoughItemsError
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index.metadata import RESERVED
from railsearch.recommender.requests import Requests

if TYPE_CHECKING:
    from polars import DataFrame, Series


def index_ids(items: "DataFrame") -> Tensor:
    """Return the id that an index has for each row of the items: their own if integers from 0, else rows."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    ids = items["item"]
    if ids.dtype.is_integer() and bool(ids.is_between(0, 2**63 - 1).all()):
        return torch.from_numpy(ids.cast(pl.Int64).to_numpy(writable=True))  # (N,)
    return torch.arange(len(ids))  # (N,)


def index_columns(items: "DataFrame") -> "DataFrame":
    """Return the columns of the items that an index can keep: without those that every table of results has."""
    return items.drop(RESERVED, strict=False)


def check_enough(requests: Requests, k: int, ids: Tensor, present: Tensor, *, filter_viewed: bool) -> None:
    """Check that every request has k items left, and name the first that does not.

    Args:
        requests: histories as rows of items.
        k: the number of items for each request.
        ids: (N,) id of each row.
        present: ids of the items that are searched.
        filter_viewed: items of a history are not left.
    """
    num_items = len(present)
    if k > num_items:
        raise NotEnoughItemsError(f"k is {k} but there are {num_items} items; ask for k <= {num_items}.")
    if not filter_viewed:
        return
    is_there = torch.isin(ids, present)  # (N,)
    for place, items in enumerate(requests.items):
        num_left = num_items - int(is_there[torch.unique(items)].sum())
        if num_left < k:
            remedy = f"ask for k <= {num_left}, or pass" if num_left else "pass"
            raise NotEnoughItemsError(
                f"k is {k} but {requests.title(place)} leaves {num_left} of the {num_items} items; {remedy} "
                "filter_viewed=False."
            )


def to_table(found: SearchResult, names: "Series", items: "Series", ids: Tensor) -> "DataFrame":
    """Return results as a table: user, item, score, rank; places that hold no item are dropped."""
    import polars as pl  # noqa: PLC0415

    num_requests, k = found.ids.shape
    flat = found.ids.cpu().flatten()  # (B * K,)
    ascending, places = ids.sort()  # (N,)
    rows = places[torch.searchsorted(ascending, flat).clamp_max(len(ids) - 1)]  # (B * K,)
    is_ours = ids[rows] == flat  # (B * K,)
    table = pl.DataFrame(
        {
            "user": names.gather(pl.Series(range(num_requests), dtype=pl.Int64).repeat_by(k).explode()),
            "item": items.gather(rows.numpy()),
            "score": found.scores.flatten().numpy(force=True),
            "rank": list(range(1, k + 1)) * num_requests,
        }
    )
    is_real = flat != NO_ITEM
    if bool((is_real & ~is_ours).any()):  # items that were added to the index after the model was trained
        known = dict(zip(found.to_frame()["id"], found.to_frame()["item"], strict=True))
        table = table.with_columns(item=pl.Series([known.get(name) for name in flat.tolist()], dtype=items.dtype))
    return table if bool(is_real.all()) else table.filter(pl.Series(is_real.numpy()))
