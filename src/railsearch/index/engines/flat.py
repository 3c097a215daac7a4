"""The default engine: a plain scan in torch, block by block. It is exact and has nothing to build."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.index.engines.contract import NO_ROW, Nearest
from railsearch.kernels import RowFilter, RunningBest, for_each_block, select_best

VALUES_PER_BLOCK = 2**21
"""Dot products that a scan holds at once: 8 MiB of them."""
LEAST_ROWS_PER_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Flat:
    """Scan every row.

    It has no thresholds: without them, a two-pass search scans the items itself, with a threshold that rises as it
    finds better items.
    """

    key = "Flat()"
    table_key = "Flat()"
    is_exact = True
    sees_every_row = True
    supports_threshold = False
    is_persistent = False
    max_n = None

    def check_available(self, dim: int | None = None) -> None:
        """Do nothing: a scan is always available."""

    def build(self, name: str, vectors: Tensor) -> "FlatTable":
        """Keep the vectors as they are."""
        return FlatTable(vectors)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> "FlatTable":
        """Keep the vectors as they are; nothing is stored."""
        return FlatTable(vectors)


@dataclass(frozen=True, slots=True, eq=False)
class FlatTable:
    """Vectors to scan, in any precision. Of equal scores, the smaller row is better."""

    vectors: Tensor  # (N, d)

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        return self._scan(vectors, n, row_filter, bounds=None)

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Do what `best` does, and raise bounds (B, N) to the best dot product of each row and query."""
        return self._scan(vectors, n, row_filter, bounds=bounds)

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Raise an error: see Flat."""
        raise EngineError("Flat() has no thresholds; check supports_threshold before you ask for them.")

    def to_bytes(self) -> bytes:
        """Return nothing: the vectors are all there is."""
        return b""

    def close(self) -> None:
        """Do nothing: the vectors belong to the index."""

    def _scan(self, vectors: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None) -> Nearest:
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
                last = min(first + rows_per_block, end)
                block = self.vectors[first:last].to(flat.dtype)  # (n, d)
                scores = flat @ block.T  # (B * V, n)
                by_query = scores.view(num_queries, num_vectors, len(block))  # (B, V, n)
                if row_filter is not None:
                    row_filter.hide(by_query, first)
                if bounds is not None and num_vectors:
                    own = bounds[:, first:last]  # (B, n)
                    torch.maximum(own, by_query.amax(dim=1), out=own)
                best.update(scores, torch.arange(first, last, device=scores.device))
            best_of[begin] = best.result()  # (B * V, <= n)

        rows_per_stretch = max(rows_per_block, math.ceil(len(self.vectors) / torch.get_num_threads()))
        for_each_block(len(self.vectors), rows_per_stretch, scan_stretch, device=flat.device)
        stretches = [best_of[begin] for begin in sorted(best_of)]
        # Earlier stretches have smaller rows and come first, so they win ties.
        found, columns = select_best(torch.cat([scores for scores, _ in stretches], dim=1), shape[2])  # (B * V, n)
        rows = torch.cat([rows for _, rows in stretches], dim=1).gather(1, columns)  # (B * V, n)
        rows = rows.masked_fill(found == -torch.inf, NO_ROW)
        return Nearest(rows.view(shape), found.view(shape))
