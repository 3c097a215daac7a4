"""The default engine: a plain scan in torch, block by block; exact, and nothing to build."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.engines.contract import NO_ROW, Nearest
from railsearch.kernels import RowFilter, RunningBest, for_each_block, select_best

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

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        return self.scan(vectors, n, row_filter, visit=None)

    def scan(
        self, vectors: Tensor, n: int, row_filter: RowFilter | None, visit: Callable[[Tensor, int], None] | None
    ) -> Nearest:
        """Do what `best` does, and show each block of dot products (B, V, n) with its first row on the way."""
        num_queries, num_vectors, dim = vectors.shape
        shape = (num_queries, num_vectors, min(n, len(self.vectors)))
        if not len(self.vectors):
            return Nearest(torch.zeros(shape, dtype=torch.int64, device=vectors.device), vectors.new_zeros(shape))
        flat = vectors.reshape(-1, dim)  # (B * V, d)
        rows_per_block = max(LEAST_ROWS_PER_BLOCK, VALUES_PER_BLOCK // max(1, len(flat)))
        best_of: dict[int, tuple[Tensor, Tensor]] = {}

        def scan_stretch(begin: int, end: int) -> None:
            best = RunningBest(min(n, end - begin))
            for first in range(begin, end, rows_per_block):
                block = self.vectors[first : min(first + rows_per_block, end)].to(flat.dtype)  # (n, d)
                scores = flat @ block.T  # (B * V, n)
                by_query = scores.view(num_queries, num_vectors, len(block))  # (B, V, n)
                if row_filter is not None:
                    row_filter.hide(by_query, first)
                if visit is not None:
                    visit(by_query, first)
                best.update(scores, torch.arange(first, first + len(block), device=scores.device))
            best_of[begin] = best.result()  # (B * V, <= n)

        rows_per_stretch = max(rows_per_block, math.ceil(len(self.vectors) / torch.get_num_threads()))
        for_each_block(len(self.vectors), rows_per_stretch, scan_stretch, device=flat.device)
        stretches = [best_of[begin] for begin in sorted(best_of)]
        # Earlier stretches have smaller rows and stand first, so that they win ties.
        found, columns = select_best(torch.cat([scores for scores, _ in stretches], dim=1), shape[2])  # (B * V, n)
        rows = torch.cat([rows for _, rows in stretches], dim=1).gather(1, columns)  # (B * V, n)
        rows = rows.masked_fill(found == -torch.inf, NO_ROW)
        return Nearest(rows.view(shape), found.view(shape))

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Refuse: see Flat."""
        raise InvalidInputError("Flat() has no thresholds; a two-pass search scans by itself.")
