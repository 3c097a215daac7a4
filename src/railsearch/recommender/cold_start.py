"""Users without a history: refuse them, or recommend the items with the most training events."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index import Allow, Index
from railsearch.recommender.requests import Requests


class ColdStart(StrEnum):
    """Ways to treat a user without a history, or whose history has no known item."""

    REFUSE = "refuse"
    POPULAR = "popular"

    @property
    def remedy(self) -> str | None:
        """The advice in errors about such users; None if they are accepted."""
        return None if self is ColdStart.POPULAR else 'call recommend with cold_start="popular" for popular items'


@dataclass(frozen=True, slots=True, eq=False)
class PopularItems:
    """Items in the order of their popularity; ties are ordered by id."""

    ids: Tensor  # (M,)
    counts: Tensor  # (M,) training events

    def insert(self, found: SearchResult | None, is_cold: Tensor, k: int) -> SearchResult:
        """Return results in which users without a history have the k most popular items.

        Args:
            found: the results of all other users, in their order; None if there are none.
            is_cold: (B,) whether each user has no history.
            k: the number of items for each user.
        """
        ids = torch.full((len(is_cold), k), NO_ITEM)  # (B, K)
        scores = torch.full((len(is_cold), k), -torch.inf)  # (B, K)
        num_popular = min(k, len(self.ids))
        places = is_cold.nonzero()  # (C, 1)
        ids[places, torch.arange(num_popular)] = self.ids[:num_popular]
        scores[places, torch.arange(num_popular)] = self.counts[:num_popular].float()
        if found is not None:
            ids[~is_cold], scores[~is_cold] = found.ids.cpu(), found.scores.cpu()
        return SearchResult(
            ids=ids,
            scores=scores,
            ceiling=scores[:, -1],
            num_scored=torch.full((len(is_cold),), len(self.ids)),
            lookup=None if found is None else found.lookup,
        )


def find_popular(
    cold_start: ColdStart, index: Index, allow: Allow, *, item_counts: Tensor | None, ids: Tensor, k: int, pad: bool
) -> PopularItems | None:
    """Return the popular items, or None if users without a history are refused.

    Args:
        cold_start: what to do with users without a history.
        index: holds the items that can be recommended. Items that are not the model's have no count, and are omitted.
        allow: as in `Index.search`.
        item_counts: (N,) training events of each item of the model; None if they are unknown.
        ids: (N,) ids of these items.
        k: the number of items for each user; fewer raise an error.
        pad: accept fewer than k items.
    """
    if cold_start is ColdStart.REFUSE:
        return None
    if item_counts is None:
        raise InvalidInputError(
            'cold_start is "popular" but this model was saved without the popularity of its items, by an earlier '
            "railsearch; train it again, or use railsearch.baselines.Popularity."
        )
    rows = torch.isin(ids, index.allowed_ids(allow)).nonzero().flatten()  # (M,)
    rows = rows[ids[rows].argsort()]  # (M,) ties are ordered by id
    if len(rows) < k and not pad:
        raise NotEnoughItemsError(
            f"k is {k} but only {len(rows)} items of the model may be recommended; ask for a smaller k, or pass "
            "pad=True."
        )
    order = item_counts[rows].argsort(descending=True, stable=True)  # (M,)
    return PopularItems(ids[rows[order]], item_counts[rows[order]])


def answer(
    requests: Requests, k: int, search: Callable[[Requests], SearchResult], popular: PopularItems | None
) -> SearchResult:
    """Search for the requests that have a history, and insert popular items for all others.

    Args:
        requests: users with and without a history; all have one if `popular` is None.
        k: the number of items for each request.
        search: finds the k best items of requests that have a history.
        popular: the items for requests without one.
    """
    is_cold = requests.is_cold  # (B,)
    if popular is None or not bool(is_cold.any()):
        return search(requests)
    warm = requests.where(~is_cold)
    return popular.insert(search(warm) if len(warm) else None, is_cold, k)
