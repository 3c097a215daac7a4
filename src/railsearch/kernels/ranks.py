"""Ranks of known items among all items, for evaluation."""

import torch
from torch import Tensor

from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.kernels.blocks import QUERIES_PER_BLOCK, cut
from railsearch.kernels.choose import choose_kernel
from railsearch.kernels.contract import Kernel
from railsearch.kernels.row_filter import RowFilter
from railsearch.similarity import ItemParts, QueryParts, Similarity


@plain_arithmetic()
def target_ranks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    targets: Tensor,
    *,
    row_filter: RowFilter | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    """Return the rank (B,) of each query's target row among all rows that the filter allows; the best has rank 1.

    Ties have the order of search: smaller row first. The target itself counts even if the filter hides it. Its score
    is computed together with all others: computed alone it could round differently, and win or lose ties.
    """
    if kernel is None:
        kernel = choose_kernel(similarity, query_parts.components.device)
    ranks = torch.empty_like(targets)  # (B,)
    rows = torch.arange(len(item_parts), device=targets.device)  # (N,)
    for first, last in cut(len(query_parts), QUERIES_PER_BLOCK):
        scores = kernel.score(query_parts[first:last], item_parts, 0, len(item_parts))  # (B, N)
        own_row = targets[first:last, None]  # (B, 1)
        own_score = scores.gather(1, own_row)  # (B, 1)
        if row_filter is not None:
            row_filter.of_queries(first, last).hide(scores, 0)
        scores.scatter_(1, own_row, -torch.inf)
        is_ahead = (scores > own_score) | ((scores == own_score) & (rows < own_row))  # (B, N)
        ranks[first:last] = 1 + is_ahead.sum(dim=1)
    return ranks
