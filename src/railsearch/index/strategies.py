"""HOW to find the top K: small frozen choices that a search is given (the paper's section 3)."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from railsearch.scoring import Exclusions, top_k
from railsearch.similarity import ItemParts, QueryParts, Similarity


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a strategy found: rows of the corpus, best first, and the ceiling of what it did not score."""

    rows: Tensor  # (B, K) int64
    scores: Tensor  # (B, K)
    ceiling: Tensor  # (B,)
    num_scored: Tensor  # (B,) int64


@runtime_checkable
class Strategy(Protocol):
    """A way to find the k best rows."""

    def find_rows(
        self,
        similarity: Similarity,
        query_parts: QueryParts,
        item_parts: ItemParts,
        k: int,
        *,
        excluded: Exclusions | None,
    ) -> Found:
        """Find the k best rows of each query."""
        ...


@dataclass(frozen=True, slots=True)
class BruteForce:
    """Score every item: exact, and the measure of every other strategy."""

    def find_rows(
        self,
        similarity: Similarity,
        query_parts: QueryParts,
        item_parts: ItemParts,
        k: int,
        *,
        excluded: Exclusions | None,
    ) -> Found:
        """Find the k best rows of each query."""
        scores, rows = top_k(similarity, query_parts, item_parts, k, excluded=excluded)
        device = scores.device
        return Found(
            rows=rows,
            scores=scores,
            ceiling=torch.full((len(query_parts),), -torch.inf, device=device),  # nothing was left unscored
            num_scored=torch.full((len(query_parts),), len(item_parts), dtype=torch.int64, device=device),
        )
