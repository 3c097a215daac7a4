"""phi for many pairs on any device, in blocks that stay in the cache: the answers a faster kernel must repeat."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import check_count, is_finite
from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.kernels.row_filter import RowFilter
from railsearch.kernels.selection import RunningBest
from railsearch.kernels.stages import Stage, timed
from railsearch.kernels.workers import for_each_block
from railsearch.similarity import ItemParts, QueryParts, Similarity

VALUES_PER_BLOCK = 2**19
"""Values held at once by the widest layer of a block: 2 MiB in fp32. benchmarks/scoring_blocks.py shows what
other sizes cost."""
LEAST_BLOCKS_PER_CORE = 4
"""Candidates are scored by workers from so many blocks a core on; a few are done sooner than workers are woken."""
QUERIES_PER_BLOCK = 32
ROWS_PER_SELECTION = 16_384
"""Items whose scores are gathered before the best are kept: selecting seldom is cheaper than selecting often."""


class ItemRows(Protocol):
    """Items whose parts can be had row by row."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor) -> ItemParts:
        """The parts of rows (B, C): components (B, C, Px, d) and gate (B, C, P)."""
        ...


@plain_arithmetic()
def top_k(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    k: int,
    *,
    row_filter: RowFilter | None = None,
    pairs_per_block: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores and rows (B, K) of the k best items of each query, best first; of equal scores the smaller row.

    Where hidden rows leave a query fewer than k items, the rest of its scores are minus infinity.
    """
    _check_scoring(similarity, query_parts, item_parts)
    check_count(k, name="k")
    if k > len(item_parts):
        raise NotEnoughItemsError(f"k is {k} but there are {len(item_parts)} items; ask for k <= {len(item_parts)}.")
    scores = query_parts.components.new_empty(len(query_parts), k)  # (B, K)
    rows = torch.empty_like(scores, dtype=torch.int64)  # (B, K)
    for first, last in _blocks(len(query_parts), QUERIES_PER_BLOCK):
        best = RunningBest(k)
        own_filter = None if row_filter is None else row_filter.of_queries(first, last)
        for left, right in _blocks(len(item_parts), ROWS_PER_SELECTION):
            chunk = _score_rows(
                similarity,
                query_parts[first:last],
                item_parts,
                left,
                right,
                row_filter=own_filter,
                pairs_per_block=pairs_per_block,
            )  # (B, n)
            best.update(chunk, torch.arange(left, right, device=chunk.device))
        scores[first:last], rows[first:last] = best.result()
    return scores, rows


@timed(Stage.SCORING)
@plain_arithmetic()
def score_candidates(
    similarity: Similarity,
    query_parts: QueryParts,
    items: ItemRows,
    candidates: Tensor,
    *,
    pairs_per_block: int | None = None,
) -> Tensor:
    """Scores (B, C) of each query with its own rows, given as candidates (B, C)."""
    if candidates.ndim != 2 or len(candidates) != len(query_parts) or candidates.dtype != torch.int64:
        raise InvalidInputError(
            f"candidates has shape {tuple(candidates.shape)} of {candidates.dtype} but there are {len(query_parts)} "
            "queries; give one row of int64 candidates for each query."
        )
    if candidates.numel() and not 0 <= int(candidates.min()) <= int(candidates.max()) < len(items):
        raise InvalidInputError(
            f"candidates holds rows from {int(candidates.min())} to {int(candidates.max())} but there are "
            f"{len(items)} items; rows count from 0."
        )
    _check_scoring(similarity, query_parts, items[candidates[:, :0]])
    scores = query_parts.components.new_empty(candidates.shape)  # (B, C)
    for first, last in _blocks(len(query_parts), QUERIES_PER_BLOCK):
        width = _rows_per_block(similarity, last - first, pairs_per_block)
        scores[first:last] = _score_own(similarity, query_parts[first:last], items, candidates[first:last], width)
    return _checked_scores(scores)


@plain_arithmetic()
def target_ranks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    targets: Tensor,
    *,
    row_filter: RowFilter | None = None,
    pairs_per_block: int | None = None,
) -> Tensor:
    """Rank (B,) of each query's target row among all rows that are not hidden; the best has rank 1.

    Ties stand in the order of search: smaller row first. The target itself counts even where it is hidden. Its
    score is computed together with all others: computed by itself it could round differently, and lose or win ties.
    """
    _check_scoring(similarity, query_parts, item_parts)
    ranks = torch.empty_like(targets)  # (B,)
    rows = torch.arange(len(item_parts), device=targets.device)  # (N,)
    for first, last in _blocks(len(query_parts), QUERIES_PER_BLOCK):
        scores = _score_rows(
            similarity,
            query_parts[first:last],
            item_parts,
            0,
            len(item_parts),
            row_filter=None,
            pairs_per_block=pairs_per_block,
        )  # (B, N)
        own_row = targets[first:last, None]  # (B, 1)
        own_score = scores.gather(1, own_row)  # (B, 1)
        if row_filter is not None:
            row_filter.of_queries(first, last).hide(scores, 0)
        scores.scatter_(1, own_row, -torch.inf)
        is_ahead = (scores > own_score) | ((scores == own_score) & (rows < own_row))  # (B, N)
        ranks[first:last] = 1 + is_ahead.sum(dim=1)
    return ranks


@timed(Stage.SCORING)
@plain_arithmetic()
def score_all(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
    """Scores (B, N) of every query with every item, block by block; for as many items as B x N has room for."""
    _check_scoring(similarity, query_parts, item_parts)
    return _score_rows(similarity, query_parts, item_parts, 0, len(item_parts), row_filter=None, pairs_per_block=None)


def _score_own(
    similarity: Similarity, query_parts: QueryParts, items: ItemRows, candidates: Tensor, width: int
) -> Tensor:
    """Scores (B, C) of a batch of queries with their own candidates (B, C), so many at a time."""
    scores = query_parts.components.new_empty(candidates.shape)  # (B, C)

    def score_block(left: int, right: int) -> None:
        own = items[candidates[:, left:right]].to(scores.dtype)
        scores[:, left:right] = similarity.score_candidates(query_parts, own)

    for_each_block(candidates.shape[1], width, score_block, device=scores.device, blocks_per_core=LEAST_BLOCKS_PER_CORE)
    return scores


@timed(Stage.SCORING)
def _score_rows(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    first: int,
    last: int,
    *,
    row_filter: RowFilter | None,
    pairs_per_block: int | None,
) -> Tensor:
    """Scores (B, last - first) of the rows from first to last - 1, computed block by block."""
    scores = query_parts.components.new_empty(len(query_parts), last - first)  # (B, n)
    width = _rows_per_block(similarity, len(query_parts), pairs_per_block)

    def score_block(left: int, right: int) -> None:
        # The last block reaches back to full width: a narrower product is likelier to round equal items differently.
        start = max(0, first + right - width)
        block = similarity.score(query_parts, item_parts[start : first + right].to(scores.dtype))  # (B, width)
        scores[:, left:right] = block[:, first + left - start :]

    for_each_block(last - first, width, score_block, device=scores.device)
    _checked_scores(scores)
    if row_filter is not None:
        row_filter.hide(scores, first)
    return scores


def _rows_per_block(similarity: Similarity, num_queries: int, pairs_per_block: int | None) -> int:
    """How many items to score with so many queries at once; a multiple of 16 where that is possible."""
    num_pairs = VALUES_PER_BLOCK // similarity.values_per_pair if pairs_per_block is None else pairs_per_block
    width = max(1, num_pairs // max(1, num_queries))
    return width - width % 16 if width > 16 else width


def _checked_scores(scores: Tensor) -> Tensor:
    if not is_finite(scores):
        raise InvalidInputError(
            "some scores are NaN or infinite: embeddings or weights are too large; scale the embeddings, or train "
            "with a lower learning rate."
        )
    return scores


def _blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, size):
        yield first, min(first + size, count)


def _check_scoring(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> None:
    if similarity.training and next(iter(similarity.parameters()), None) is not None:
        raise InvalidInputError(
            "the similarity is in training mode, in which dropout changes its scores; call .eval() on it first."
        )
    wanted_query = (similarity.num_query_components, similarity.component_dim)
    wanted_item = (similarity.num_item_components, similarity.component_dim)
    found_query, found_item = tuple(query_parts.components.shape[1:]), tuple(item_parts.components.shape[-2:])
    if (found_query, found_item) != (wanted_query, wanted_item):
        raise InvalidInputError(
            f"query and item components are {found_query} and {found_item} but this similarity has "
            f"{wanted_query} and {wanted_item}; make both with this similarity."
        )
