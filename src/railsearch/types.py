"""Small frozen results that every layer shares."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

NO_ITEM = -1
"""Stands in `ids` where a padded result has no item; its score is minus infinity."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The K best items of each query, best first, with a certificate (the paper's section 3).

    `ceiling` is the best score that an item which was not scored could still have. Everything else that
    the certificate says follows from it. Unpacks as `scores, ids`, as users of FAISS expect.

    >>> import torch
    >>> result = SearchResult(
    ...     ids=torch.tensor([[7, 3]]), scores=torch.tensor([[1.0, 0.5]]),
    ...     ceiling=torch.tensor([0.75]), num_scored=torch.tensor([4]),
    ... )
    >>> result.gap.tolist(), result.is_exact.tolist(), result.num_certified.tolist()
    ([0.25], [False], [1])
    """

    ids: Tensor  # (B, K) int64
    scores: Tensor  # (B, K) float32
    ceiling: Tensor  # (B,) float32
    num_scored: Tensor  # (B,) int64

    @property
    def kth_score(self) -> Tensor:
        """The worst score that was returned for each query."""
        return self.scores[:, -1]  # (B,)

    @property
    def gap(self) -> Tensor:
        """How much the true k-th score can exceed the returned one; zero means exact."""
        difference = self.ceiling - self.kth_score  # (B,)
        return difference.where(self.ceiling > self.kth_score, 0.0)  # (B,)

    @property
    def is_exact(self) -> Tensor:
        """Whether the answer is certainly the true top K, up to ties at the k-th score."""
        return self.ceiling <= self.kth_score  # (B,)

    @property
    def num_certified(self) -> Tensor:
        """How many of the returned items are certainly in the true top K."""
        certain = (self.scores >= self.ceiling[:, None]) & (self.ids != NO_ITEM)  # (B, K)
        return certain.sum(dim=1)  # (B,)

    def __iter__(self) -> Iterator[Tensor]:
        yield self.scores
        yield self.ids

    def __repr__(self) -> str:
        num_queries, k = self.ids.shape
        return f"SearchResult({num_queries} queries, k={k}, {int(self.is_exact.sum())} certified exact)"


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What the score of one query and one item is made of."""

    item_id: int
    score: float
    component_scores: Tensor  # (Pq, Px)
    gate_weights: Tensor  # (Pq, Px)

    @property
    def contributions(self) -> Tensor:
        """Weight times component score of each pair; they sum to the score."""
        return self.gate_weights * self.component_scores  # (Pq, Px)

    def ranked(self) -> list[tuple[int, int, float]]:
        """Pairs (query component, item component, contribution), the one that adds most first."""
        contributions = self.contributions
        order = contributions.flatten().sort(descending=True, stable=True).indices  # (P,)
        rows, columns = torch.unravel_index(order, contributions.shape)  # (P,)
        values = contributions[rows, columns].tolist()
        return list(zip(rows.tolist(), columns.tolist(), values, strict=True))
