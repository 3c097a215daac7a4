"""Ranks of known items among all items, for evaluation."""

import torch
from torch import Tensor

from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.kernels.blocks import QUERIES_PER_BLOCK, cut
from railsearch.kernels.choose import choose_kernel
from railsearch.kernels.contract import Kernel
from railsearch.kernels.row_filter import RowFilter
from railsearch.similarity import ItemParts, QueryParts, Similarity


def target_ranks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    targets: Tensor,
    *,
    row_filter: RowFilter | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    """Return the rank (B,) of each query's target row; see `best_ranks`."""
    owners = torch.arange(len(targets), device=targets.device)  # (B,)
    return best_ranks(similarity, query_parts, item_parts, owners, targets, row_filter=row_filter, kernel=kernel)


@plain_arithmetic()
def best_ranks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    owners: Tensor,
    targets: Tensor,
    *,
    row_filter: RowFilter | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    """Return the rank (B,) of the best-placed target of each query among all rows that the filter allows; 1 is first.

    Ties have the order of search: smaller row first. A target counts even if the filter hides it. Its score is
    computed together with all others: computed alone it could round differently, and win or lose ties.

    Args:
        similarity: the similarity that computed the parts.
        query_parts: query side of B queries.
        item_parts: item side of all rows.
        owners: (M,) the query of each target, ascending; every query has at least one.
        targets: (M,) rows.
        row_filter: rows that each query must not see.
        kernel: the kernel that scores; by default the best one for the device.
    """
    if kernel is None:
        kernel = choose_kernel(similarity, query_parts.components.device)
    ranks = torch.empty(len(query_parts), dtype=torch.int64, device=targets.device)  # (B,)
    rows = torch.arange(len(item_parts), device=targets.device)  # (N,)
    for first, last in cut(len(query_parts), QUERIES_PER_BLOCK):
        scores = kernel.score(query_parts[first:last], item_parts, 0, len(item_parts))  # (b, N)
        begin, end = torch.searchsorted(owners, owners.new_tensor([first, last])).tolist()
        own, own_rows = owners[begin:end] - first, targets[begin:end]  # (m,)
        own_scores = scores[own, own_rows]  # (m,)
        best = scores.new_full((last - first,), -torch.inf).scatter_reduce(0, own, own_scores, "amax")  # (b,)
        placed = torch.where(own_scores == best[own], own_rows, len(rows))  # (m,)
        best_rows = torch.full_like(ranks[first:last], len(rows)).scatter_reduce(0, own, placed, "amin")  # (b,)
        if row_filter is not None:
            row_filter.of_queries(first, last).hide(scores, 0)
        scores[own, own_rows] = -torch.inf
        is_ahead = (scores > best[:, None]) | ((scores == best[:, None]) & (rows < best_rows[:, None]))  # (b, N)
        ranks[first:last] = 1 + is_ahead.sum(dim=1)
    return ranks
