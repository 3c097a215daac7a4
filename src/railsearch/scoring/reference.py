"""phi for many pairs on any device, in blocks that stay in the cache: the answers a faster kernel must repeat."""

from collections.abc import Iterator

import torch
from torch import Tensor

from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.inputs import check_count
from railsearch.scoring.exclusions import Exclusions
from railsearch.scoring.selection import RunningBest
from railsearch.similarity import ItemParts, QueryParts, Similarity

PAIRS_PER_BLOCK = 4096
"""(query, item) pairs scored at once. The gate's hidden layer of such a block is 2 MiB for 128 hidden units;
benchmarks/scoring_blocks.py shows what other sizes cost."""
QUERIES_PER_BLOCK = 32
ROWS_PER_SELECTION = 16_384
"""Items whose scores are gathered before the best are kept: selecting seldom is cheaper than selecting often."""


@torch.no_grad()
def top_k(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    k: int,
    *,
    excluded: Exclusions | None = None,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> tuple[Tensor, Tensor]:
    """Scores and rows (B, K) of the k best items of each query, best first; of equal scores the smaller row.

    Where exclusions leave a query fewer than k items, the rest of its scores are minus infinity.
    """
    _check_scoring(similarity, query_parts, item_parts)
    check_count(k, name="k")
    if k > len(item_parts):
        raise NotEnoughItemsError(f"k is {k} but there are {len(item_parts)} items; ask for k <= {len(item_parts)}.")
    scores, rows = [], []
    for first, last in _blocks(len(query_parts), QUERIES_PER_BLOCK):
        best = RunningBest(k)
        for first_row, chunk in _score_chunks(
            similarity,
            query_parts[first:last],
            item_parts,
            excluded=None if excluded is None else excluded.of_queries(first, last),
            pairs_per_block=pairs_per_block,
        ):
            best.update(chunk, first_row)
        block_scores, block_rows = best.result()
        scores.append(block_scores)
        rows.append(block_rows)
    if not scores:
        device = query_parts.components.device
        return torch.empty(0, k, device=device), torch.empty(0, k, dtype=torch.int64, device=device)
    return torch.cat(scores), torch.cat(rows)


@torch.no_grad()
def score_candidates(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    candidates: Tensor,
    *,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> Tensor:
    """Scores (B, C) of each query with its own rows, given as candidates (B, C)."""
    _check_scoring(similarity, query_parts, item_parts)
    if candidates.ndim != 2 or len(candidates) != len(query_parts):
        raise InvalidInputError(
            f"candidates has shape {tuple(candidates.shape)} but there are {len(query_parts)} queries; "
            "give one row of candidates for each query."
        )
    if candidates.numel() and not 0 <= int(candidates.min()) <= int(candidates.max()) < len(item_parts):
        raise InvalidInputError(
            f"candidates holds rows from {int(candidates.min())} to {int(candidates.max())} but there are "
            f"{len(item_parts)} items; rows count from 0."
        )
    scores = query_parts.components.new_empty(candidates.shape)  # (B, C)
    for first, last in _blocks(len(query_parts), QUERIES_PER_BLOCK):
        width = max(1, pairs_per_block // (last - first))
        for left, right in _blocks(candidates.shape[1], width):
            own = item_parts[candidates[first:last, left:right]]
            scores[first:last, left:right] = similarity.score_candidates(query_parts[first:last], own)
    return scores


@torch.no_grad()
def target_ranks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    targets: Tensor,
    *,
    excluded: Exclusions | None = None,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> Tensor:
    """Rank (B,) of each query's target row among all rows that are not excluded; the best has rank 1.

    Ties stand in the order of search: smaller row first. The target itself counts even where it is excluded.
    """
    target_scores = score_candidates(
        similarity, query_parts, item_parts, targets[:, None], pairs_per_block=pairs_per_block
    )  # (B, 1)
    ranks = torch.ones_like(targets)
    for first, last in _blocks(len(query_parts), QUERIES_PER_BLOCK):
        own_score, own_row = target_scores[first:last], targets[first:last, None]  # (B, 1)
        for first_row, chunk in _score_chunks(
            similarity,
            query_parts[first:last],
            item_parts,
            excluded=None if excluded is None else excluded.of_queries(first, last),
            pairs_per_block=pairs_per_block,
        ):
            rows = torch.arange(first_row, first_row + chunk.shape[1], device=chunk.device)  # (n,)
            is_ahead = (chunk > own_score) | ((chunk == own_score) & (rows < own_row))  # (B, n)
            ranks[first:last] += (is_ahead & (rows != own_row)).sum(dim=1)
    return ranks


def _score_chunks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    *,
    excluded: Exclusions | None,
    pairs_per_block: int,
) -> Iterator[tuple[int, Tensor]]:
    """Scores of all items in chunks (B, n), each with the row that it begins at."""
    rows_per_block = max(1, pairs_per_block // max(1, len(query_parts)))
    for first, last in _blocks(len(item_parts), ROWS_PER_SELECTION):
        chunk = query_parts.components.new_empty(len(query_parts), last - first)  # (B, n)
        for left, right in _blocks(last - first, rows_per_block):
            chunk[:, left:right] = similarity.score(query_parts, item_parts[first + left : first + right])
        if excluded is not None:
            excluded.hide(chunk, first)
        yield first, chunk


def _blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, size):
        yield first, min(first + size, count)


def _check_scoring(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> None:
    if similarity.training:
        raise InvalidInputError(
            "the similarity is in training mode, in which dropout changes its scores; call .eval() on it first."
        )
    wanted_query = (similarity.num_query_components, similarity.component_dim)
    wanted_item = (similarity.num_item_components, similarity.component_dim)
    found_query, found_item = tuple(query_parts.components.shape[1:]), tuple(item_parts.components.shape[1:])
    if (found_query, found_item) != (wanted_query, wanted_item):
        raise InvalidInputError(
            f"query and item components are {found_query} and {found_item} but this similarity has "
            f"{wanted_query} and {wanted_item}; make both with this similarity."
        )
