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
    for first, last in cut(len(query_parts), QUERIES_PER_BLOCK):
        scores = kernel.score(query_parts[first:last], item_parts, 0, len(item_parts))  # (b, N)
        begin, end = torch.searchsorted(owners, owners.new_tensor([first, last])).tolist()
        own_filter = None if row_filter is None else row_filter.of_queries(first, last)
        ranks[first:last] = ranks_among(scores, owners[begin:end] - first, targets[begin:end], row_filter=own_filter)
    return ranks


def ranks_among(scores: Tensor, owners: Tensor, targets: Tensor, *, row_filter: RowFilter | None = None) -> Tensor:
    """Return the rank (B,) of each query's best-placed target by scores (B, N), which are overwritten.

    The m targets are those of `best_ranks`.
    """
    num_queries, num_rows = scores.shape
    own_scores = scores[owners, targets]  # (m,)
    best = scores.new_full((num_queries,), -torch.inf).scatter_reduce(0, owners, own_scores, "amax")  # (B,)
    placed = torch.where(own_scores == best[owners], targets, num_rows)  # (m,)
    best_rows = targets.new_full((num_queries,), num_rows).scatter_reduce(0, owners, placed, "amin")  # (B,)
    if row_filter is not None:
        row_filter.hide(scores, 0)
    scores[owners, targets] = -torch.inf
    rows = torch.arange(num_rows, device=scores.device)  # (N,)
    is_ahead = (scores > best[:, None]) | ((scores == best[:, None]) & (rows < best_rows[:, None]))  # (B, N)
    return 1 + is_ahead.sum(dim=1)
