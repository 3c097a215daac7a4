"""Popularity: the same items for everybody, those with the most training events, or with the most recent ones."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from railsearch.baselines.ranking import evaluate_baseline, rank_by_scores, recommend_best, score_requests
from railsearch.data import HeldOut, Interactions, Split
from railsearch.evaluation import Evaluation
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_positive
from railsearch.recommender.events import InteractionsLike, as_split
from railsearch.recommender.requests import HistoriesLike, Requests, UnknownItems

if TYPE_CHECKING:
    from polars import DataFrame

SECONDS_PER_DAY = 86_400


class Popularity:
    """The number of training events of each item, where recent events may count more than old ones.

    It takes a moment to fit, so it is not saved: fit it again.

    >>> import polars as pl
    >>> events = pl.DataFrame({"user": [1, 1, 1, 2, 2, 2], "item": [5, 6, 7, 5, 7, 6], "timestamp": range(6)})
    >>> popularity = Popularity.fit(events)  # the last two events of each user are held out
    >>> popularity
    Popularity(3 items, 2 events)
    >>> popularity.recommend(histories=[[], [5]], k=1).rows()
    [(0, 5, 2.0, 1), (1, 6, 0.0, 1)]
    >>> popularity.evaluate(events).metrics["HR@1"]
    1.0
    """

    def __init__(self, *, item_scores: Tensor, split: Split) -> None:
        self.item_scores = item_scores  # (N,) fp64
        """The number of events of each item, or the sum of their weights."""
        self._split = split

    @classmethod
    def fit(
        cls,
        data: Split | InteractionsLike | str | Path,
        *,
        half_life_days: float | None = None,
        recent_share: float | None = None,
    ) -> Self:
        """Count the training events of each item.

        Args:
            data: a split, of which only the training events are read; or interactions, a table or a folder of prepared
                data, of which the last two events of each user are held out, as `Recommender.fit` does.
            half_life_days: an event that is older than another by this many days counts half as much. It needs times.
            recent_share: only this share of each user's training events counts, the most recent ones and at least
                one. It needs no times.
        """
        split = as_split(data, has_validation=True)
        rows = split.train_rows  # (E,)
        if recent_share is not None:
            rows = rows[_is_recent(split, rows, _checked_share(recent_share))]
        events = split.interactions
        weights = torch.ones(len(rows), dtype=torch.float64)  # (E,)
        if half_life_days is not None:
            half_life = check_positive(half_life_days, name="half_life_days")
            if not events.has_times:
                raise InvalidInputError(
                    f"half_life_days is {half_life_days} but {events.source} has no times; give recent_share instead."
                )
            ages = (events.timestamps[rows].max() - events.timestamps[rows]).double() / SECONDS_PER_DAY  # (E,)
            weights = torch.exp2(-ages / half_life)  # (E,)
        scores = torch.zeros(events.num_items, dtype=torch.float64)  # (N,)
        return cls(item_scores=scores.index_add_(0, events.items[rows], weights), split=split)

    @property
    def split(self) -> Split:
        """The split whose training events were counted."""
        return self._split

    def __repr__(self) -> str:
        return f"Popularity({len(self.item_scores):,} items, {self._split.num_train_events:,} events)"

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
        """Return the score (B, N) of every item for each history: the same for all, as fp64; see `recommend`."""
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
        """Return the k most popular items for each user, as a table: user, item, score, rank.

        Args:
            users: ids of users; a user whose history is unknown is accepted, and nothing is filtered.
            k: the number of items for each user.
            histories: histories instead of users, as in `Recommender.recommend`; they may be empty.
            filter_viewed: omit items that are in the history.
            unknown_items: as in `Recommender.recommend`.
            pad: as in `Recommender.recommend`.
        """
        requests = self._requests(users, histories, unknown_items)
        return recommend_best(self, requests, k, filter_viewed=filter_viewed, pad=pad)

    def score_rows(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the score (B, N) of every item for each history; see `Baseline`."""
        return self.item_scores.repeat(len(lengths), 1)

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
            remedy=None,
        )


def _checked_share(share: float) -> float:
    if check_positive(share, name="recent_share") > 1:
        raise InvalidInputError(f"recent_share is {share}; give a share above 0 and up to 1.")
    return share


def _is_recent(split: Split, rows: Tensor, share: float) -> Tensor:
    """Return a mask (E,) of the last training events of each user: this share of them, and at least one."""
    users = split.interactions.users[rows]  # (E,)
    counts = split.train_ends - split.interactions.offsets[:-1]  # (U,)
    num_kept = (counts * share).ceil().long()  # (U,)
    return rows >= (split.train_ends - num_kept)[users]
