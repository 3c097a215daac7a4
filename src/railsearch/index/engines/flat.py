"""The default engine: a plain scan in torch, block by block; exact, and nothing to build."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.errors import InvalidInputError
from railsearch.index.engines.contract import NO_ROW, Nearest
from railsearch.scoring import Hidden, RunningBest

VALUES_PER_BLOCK = 2**21
"""Dot products that a scan holds at once: 8 MiB of them."""
LEAST_ROWS_PER_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Flat:
    """Scan every row.

    Thresholds are not its business: a two-pass search scans by itself, with a threshold that rises on the way.
    """

    is_exact = True
    supports_threshold = False
    max_n = None

    def build(self, vectors: Tensor) -> "FlatTable":
        """Keep the vectors as they are."""
        return FlatTable(vectors)


@dataclass(frozen=True, slots=True, eq=False)
class FlatTable:
    """Vectors to be scanned, in any precision; of equal scores the smaller row is better."""

    vectors: Tensor  # (N, d)

    def best(self, vectors: Tensor, n: int, hidden: Hidden | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        return self.scan(vectors, n, hidden, visit=None)

    def scan(
        self, vectors: Tensor, n: int, hidden: Hidden | None, visit: Callable[[Tensor, int], None] | None
    ) -> Nearest:
        """Do what `best` does, and show each block of dot products (B, V, n) with its first row on the way."""
        num_queries, num_vectors, dim = vectors.shape
        flat = vectors.reshape(-1, dim)  # (B * V, d)
        best = RunningBest(min(n, len(self.vectors)))
        rows_per_block = max(LEAST_ROWS_PER_BLOCK, VALUES_PER_BLOCK // max(1, len(flat)))
        for first in range(0, len(self.vectors), rows_per_block):
            block = self.vectors[first : first + rows_per_block].to(flat.dtype)  # (n, d)
            scores = flat @ block.T  # (B * V, n)
            by_query = scores.view(num_queries, num_vectors, len(block))  # (B, V, n)
            if hidden is not None:
                hidden.hide(by_query, first)
            if visit is not None:
                visit(by_query, first)
            best.update(scores, torch.arange(first, first + len(block), device=scores.device))
        shape = (num_queries, num_vectors, min(n, len(self.vectors)))
        if not len(self.vectors):
            return Nearest(torch.zeros(shape, dtype=torch.int64, device=vectors.device), vectors.new_zeros(shape))
        found, rows = best.result()  # (B * V, n)
        rows = rows.masked_fill(found == -torch.inf, NO_ROW)
        return Nearest(rows.view(shape), found.view(shape))

    def above(self, vectors: Tensor, thresholds: Tensor, hidden: Hidden | None) -> Tensor:
        """Refuse: see Flat."""
        raise InvalidInputError("Flat() has no thresholds; a two-pass search scans by itself.")
