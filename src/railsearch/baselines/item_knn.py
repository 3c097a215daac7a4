"""ItemKNN: recommends the items that share most users with the items of a history (Deshpande and Karypis, 2004)."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from railsearch.baselines.neighbors import Neighbors, find_neighbors
from railsearch.baselines.ranking import evaluate_baseline, rank_by_scores, recommend_best, score_requests
from railsearch.data import HeldOut, Interactions, Split
from railsearch.evaluation import Evaluation
from railsearch.foundation.inputs import check_count, check_not_negative
from railsearch.models.sequential import consecutive_rows
from railsearch.recommender.events import InteractionsLike, as_split
from railsearch.recommender.requests import HistoriesLike, Requests, UnknownItems

if TYPE_CHECKING:
    from polars import DataFrame

ENTRIES_PER_STEP = 2**20
"""Neighbours of history items that are in memory at once, as far as items have no more each."""


class ItemKNN:
    """The nearest items of each item, by the cosine of the sets of users who met them.

    The score of an item is the sum of its similarities to those of the last items of a history that it is a neighbour
    of; repeated events count once. It takes seconds to fit, so it is not saved: fit it again.

    >>> import polars as pl
    >>> events = pl.DataFrame({"user": [u for u in range(6) for _ in range(4)], "item": [0, 1, 2, 3, 4, 5, 6, 7] * 3})
    >>> knn = ItemKNN.fit(Interactions.from_frame(events, timestamp=None))  # holds out each user's last two events
    >>> knn
    ItemKNN(8 items, 4 neighbours in all, at most 100 each)
    >>> knn.recommend(histories=[[4]], k=1).rows()
    [(0, 5, 0.23076921701431274, 1)]
    """

    def __init__(self, *, neighbors: Neighbors, num_neighbors: int, max_length: int | None, split: Split) -> None:
        self.neighbors = neighbors
        self.num_neighbors = num_neighbors
        self.max_length = max_length
        self._split = split

    @classmethod
    def fit(
        cls,
        data: Split | InteractionsLike | str | Path,
        *,
        num_neighbors: int = 100,
        shrinkage: float = 10.0,
        max_length: int | None = 3,
    ) -> Self:
        """Find the nearest items of each item, among the training events.

        The work grows with the sum of the squared lengths of histories. No matrix of all items by all items is made.

        Args:
            data: a split, of which only the training events are read; or interactions, a table or a folder of prepared
                data, of which the last two events of each user are held out, as `Recommender.fit` does.
            num_neighbors: the most neighbours of each item.
            shrinkage: number that is added to the denominator of the cosine, so that items with few users count less;
                0 for the plain cosine.
            max_length: only the last events of a history count, at most this many; None for all events. A few are
                usually best, because recent items say more about the next one.
        """
        check_count(num_neighbors, name="num_neighbors")
        check_not_negative(shrinkage, name="shrinkage")
        if max_length is not None:
            check_count(max_length, name="max_length")
        split = as_split(data, has_validation=True)
        events, rows = split.interactions, split.train_rows
        neighbors = find_neighbors(
            events.users[rows],
            events.items[rows],
            num_users=events.num_users,
            num_items=events.num_items,
            num_neighbors=num_neighbors,
            shrinkage=shrinkage,
        )
        return cls(neighbors=neighbors, num_neighbors=num_neighbors, max_length=max_length, split=split)

    @property
    def split(self) -> Split:
        """The split whose training events were counted."""
        return self._split

    def __repr__(self) -> str:
        num_items, num_entries = self._split.interactions.num_items, len(self.neighbors.rows)
        return f"ItemKNN({num_items:,} items, {num_entries:,} neighbours in all, at most {self.num_neighbors:,} each)"

    def evaluate(self, data: Split | InteractionsLike | str | Path) -> Evaluation:
        """Rank the test items among all items, with the protocol and the metrics of `Recommender.evaluate`.

        Args:
            data: a split; or interactions, a table or a folder of prepared data, which are split as those of the fit.
        """
        return evaluate_baseline(self, data)

    def rank_held_out(self, interactions: Interactions, held_out: HeldOut) -> Tensor:
        """Return the rank (n,) of each held-out item among all items, except the other items of the user's history."""
        return rank_by_scores(self, interactions, held_out)

    def scores(self, histories: HistoriesLike, *, unknown_items: UnknownItems | str = UnknownItems.REFUSE) -> Tensor:
        """Return the score (B, N) of every item for each history, as fp64; see `recommend`."""
        return score_requests(self, self._requests(None, histories, unknown_items))

    def recommend(
        self,
        users: Iterable[object] | None = None,
        k: int = 10,
        *,
        histories: HistoriesLike | None = None,
        filter_viewed: bool = True,
        unknown_items: UnknownItems | str = UnknownItems.REFUSE,
        pad: bool = False,
    ) -> "DataFrame":
        """Return the k best items of each user, best first, as a table: user, item, score, rank.

        Items that are no neighbour of the history have the score 0, and are ordered by row.

        Args:
            users: ids of users of the interactions that the baseline was fitted on; all their events count.
            k: the number of items for each user.
            histories: histories instead of users, as in `Recommender.recommend`.
            filter_viewed: omit items that are in the history.
            unknown_items: as in `Recommender.recommend`.
            pad: as in `Recommender.recommend`.
        """
        requests = self._requests(users, histories, unknown_items)
        return recommend_best(self, requests, k, filter_viewed=filter_viewed, pad=pad)

    def score_rows(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the score (B, N) of every item for each history; see `Baseline`."""
        num_items = self._split.interactions.num_items
        if self.max_length is not None:
            ends, lengths = lengths.cumsum(dim=0), lengths.clamp(max=self.max_length)  # (B,)
            items = items[consecutive_rows(ends - lengths, lengths)]  # (E,)
        owners = torch.arange(len(lengths)).repeat_interleave(lengths)  # (E,)
        met = torch.unique(owners * num_items + items)  # (e,) each item once for each history
        scores = torch.zeros(len(lengths) * num_items, dtype=torch.float64)  # (B * N,)
        for part in torch.split(met, max(1, ENTRIES_PER_STEP // self.num_neighbors)):
            entries, counts = self.neighbors.of(part % num_items)
            places = (part - part % num_items).repeat_interleave(counts) + self.neighbors.rows[entries]  # (m,)
            scores.index_add_(0, places, self.neighbors.similarities[entries].double())
        return scores.view(len(lengths), num_items)

    def _requests(
        self, users: Iterable[object] | None, histories: HistoriesLike | None, unknown_items: UnknownItems | str
    ) -> Requests:
        events = self._split.interactions
        return Requests.gather(
            users,
            histories,
            item_ids=events.item_ids,
            user_ids=None,
            interactions=events,
            unknown_items=unknown_items,
            at=None,
            remedy="recommend popular items with railsearch.baselines.Popularity",
        )
