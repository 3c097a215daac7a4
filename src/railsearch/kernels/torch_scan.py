"""An exact scan of one table by dot product in torch, with the best rows kept on the way."""

import math

import torch
from torch import Tensor

from railsearch.kernels.blocks import SCAN_ROWS, SCAN_VALUES
from railsearch.kernels.contract import NO_ROW, Nearest
from railsearch.kernels.row_filter import RowFilter
from railsearch.kernels.selection import RunningBest, select_best
from railsearch.kernels.workers import for_each_block


def scan(
    vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
) -> Nearest:
    """Return the n best rows of the table (N, d), in any precision, for each of the vectors (B, V, d).

    Of equal dot products the smaller row is better. With `bounds` (B, N), the scan also raises each bound in place to
    the best dot product of its row and query. A row that the filter hides keeps its bound.

    >>> found = scan(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[2.0, 9.0], [3.0, 9.0]]), 1, None)
    >>> found.rows.tolist(), found.scores.tolist()
    ([[[1]]], [[[3.0]]])
    """
    num_queries, num_vectors, dim = vectors.shape
    shape = (num_queries, num_vectors, min(n, len(table)))
    if not len(table):
        return Nearest(torch.zeros(shape, dtype=torch.int64, device=vectors.device), vectors.new_zeros(shape))
    flat = vectors.reshape(-1, dim)  # (B * V, d)
    rows_per_block = max(SCAN_ROWS, SCAN_VALUES // max(1, len(flat)))
    best_of: dict[int, tuple[Tensor, Tensor]] = {}

    def scan_stretch(begin: int, end: int) -> None:
        best = RunningBest(min(n, end - begin))
        for first in range(begin, end, rows_per_block):
            last = min(first + rows_per_block, end)
            block = table[first:last].to(flat.dtype)  # (n, d)
            scores = flat @ block.T  # (B * V, n)
            by_query = scores.view(num_queries, num_vectors, len(block))  # (B, V, n)
            if row_filter is not None:
                row_filter.hide(by_query, first)
            if bounds is not None and num_vectors:
                own = bounds[:, first:last]  # (B, n)
                torch.maximum(own, by_query.amax(dim=1), out=own)
            best.update(scores, torch.arange(first, last, device=scores.device))
        best_of[begin] = best.result()  # (B * V, <= n)

    rows_per_stretch = max(rows_per_block, math.ceil(len(table) / torch.get_num_threads()))
    for_each_block(len(table), rows_per_stretch, scan_stretch, device=flat.device)
    stretches = [best_of[begin] for begin in sorted(best_of)]
    # Earlier stretches have smaller rows and come first, so that they win ties.
    found, columns = select_best(torch.cat([scores for scores, _ in stretches], dim=1), shape[2])  # (B * V, n)
    rows = torch.cat([rows for _, rows in stretches], dim=1).gather(1, columns)  # (B * V, n)
    rows = rows.masked_fill(found == -torch.inf, NO_ROW)
    return Nearest(rows.view(shape), found.view(shape))
