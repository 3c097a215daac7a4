"""Users without a history: refuse them, or recommend the items with the most training events."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index import Allow, Index
from railsearch.index.searching import metadata_of


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

    def insert(
        self, found: SearchResult | None, is_cold: Tensor, n: int, excluded: Sequence[Tensor], index: Index
    ) -> SearchResult:
        """Return results in which users without a history have the n most popular items.

        Args:
            found: the results of all other users, in their order; None if there are none.
            is_cold: (B,) whether each user has no history.
            n: the number of items for each user.
            excluded: ids that each user without a history must not get.
            index: holds the items.
        """
        ids = torch.full((len(is_cold), n), NO_ITEM)  # (B, n)
        scores = torch.full((len(is_cold), n), -torch.inf)  # (B, n)
        for place, hidden in zip(is_cold.nonzero().flatten().tolist(), excluded, strict=True):
            is_kept = ~torch.isin(self.ids, hidden) if len(hidden) else slice(None)  # (M,)
            own = self.ids[is_kept][:n]  # (<= n,)
            ids[place, : len(own)], scores[place, : len(own)] = own, self.counts[is_kept][:n].float()
        if found is not None:
            ids[~is_cold], scores[~is_cold] = found.ids.cpu(), found.scores.cpu()
        ceiling = torch.full((len(is_cold),), -torch.inf)  # (B,)
        num_scored = torch.full((len(is_cold),), len(self.ids))  # (B,)
        if found is not None:
            ceiling[~is_cold], num_scored[~is_cold] = found.ceiling.cpu(), found.num_scored.cpu()
        corpus = index.contents.corpus
        lookup = partial(metadata_of, corpus) if corpus.has_metadata else None
        return SearchResult(ids=ids, scores=scores, ceiling=ceiling, num_scored=num_scored, lookup=lookup)


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
    if len(rows) < k and not pad:
        raise NotEnoughItemsError(
            f"k is {k} but only {len(rows)} items of the model may be recommended; ask for a smaller k, or pass "
            "pad=True."
        )
    rows = rows[ids[rows].argsort()]  # (M,) by id: items that were added later have the last rows
    order = item_counts[rows].argsort(descending=True, stable=True)  # (M,)
    return PopularItems(ids[rows[order]], item_counts[rows[order]])
