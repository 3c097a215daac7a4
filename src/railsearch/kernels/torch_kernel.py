"""The reference kernel: torch operations on any device, for any similarity, in blocks that stay in the cache."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.kernels.arithmetic import matmul_roundoff, plain_arithmetic
from railsearch.kernels.blocks import BOUND_VALUES, QUERIES_PER_BLOCK, ROWS_PER_SELECTION, cut, scoring_width
from railsearch.kernels.checks import check_candidates, check_k, check_scores, check_scoring
from railsearch.kernels.contract import NO_ROW, BestAbove, BestByComponent, ItemRows, Nearest, Roundoff
from railsearch.kernels.row_filter import RowFilter
from railsearch.kernels.selection import RunningBest, pack, select_best
from railsearch.kernels.stages import Stage, timed
from railsearch.kernels.torch_scan import scan
from railsearch.kernels.workers import for_each_block
from railsearch.similarity import ItemParts, QueryParts, Similarity

CPU = torch.device("cpu")
COMPLETE_SHARE = 0.4
"""If more than this share of the rows has to be scored, it is cheaper to score all of them."""
SAMPLE_STEP = 16
"""One in this many rows shows whether bounds pay off."""
LEAST_BLOCKS_PER_CORE = 4
"""Candidates are scored by workers only if each core gets this many blocks; fewer are done before workers wake up."""


@dataclass(frozen=True, slots=True, eq=False)
class TorchKernel:
    """A similarity's own torch operations, block by block.

    Args:
        similarity: in eval mode.
        device: the device of the parts.
        pairs_per_block: query-item pairs that are scored at once; by default as many as fit the cache.

    >>> from railsearch import DotProduct
    >>> dot = DotProduct(dim=2)
    >>> queries, items = dot.query_parts(torch.eye(2)), dot.item_parts(torch.tensor([[1.0, 2.0], [4.0, 3.0]]))
    >>> scores, rows = TorchKernel(dot).top_k(queries, items, k=1)
    >>> scores.tolist(), rows.tolist()
    ([[4.0], [3.0]], [[1], [1]])
    """

    similarity: Similarity
    device: torch.device = CPU
    pairs_per_block: int | None = None

    @property
    def name(self) -> str:
        """The name for reports."""
        return "torch"

    @property
    def roundoff(self) -> Roundoff:
        """The rounding error of one operation, under the precision that is set for matrix products now.

        A value below the smallest normal fp32 number may be flushed to zero; see `torch.set_flush_denormal`.
        """
        return Roundoff(relative=matmul_roundoff(self.device), underflow=torch.finfo(torch.float32).tiny)

    @property
    def is_bit_stable(self) -> bool:
        """False: a matrix product rounds one pair differently depending on the shape around it."""
        return False

    @plain_arithmetic()
    def score(self, query_parts: QueryParts, item_parts: ItemParts, first: int, last: int) -> Tensor:
        """Return the scores (B, last - first) of every query with the rows from first to last - 1."""
        check_scoring(self.similarity, query_parts, item_parts)
        return self._score_rows(query_parts, item_parts, first, last)

    @timed(Stage.SCORING)
    @plain_arithmetic()
    def score_candidates(self, query_parts: QueryParts, items: ItemRows, candidates: Tensor) -> Tensor:
        """Return the scores (B, C) of each query with its own rows, the candidates (B, C)."""
        check_candidates(candidates, num_queries=len(query_parts), num_items=len(items))
        check_scoring(self.similarity, query_parts, items[candidates[:, :0]])
        scores = query_parts.components.new_empty(candidates.shape)  # (B, C)
        for first, last in cut(len(query_parts), QUERIES_PER_BLOCK):
            self._score_own(query_parts[first:last], items, candidates[first:last], scores[first:last])
        return check_scores(scores)

    @plain_arithmetic()
    def top_k(
        self, query_parts: QueryParts, item_parts: ItemParts, k: int, row_filter: RowFilter | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows (B, K) of the k best items of each query, best first; of equal scores the smaller row.

        If the filter leaves a query fewer than k items, the rest of its scores are minus infinity.
        """
        check_scoring(self.similarity, query_parts, item_parts)
        check_k(k, len(item_parts))
        scores = query_parts.components.new_empty(len(query_parts), k)  # (B, K)
        rows = torch.empty_like(scores, dtype=torch.int64)  # (B, K)
        for first, last in cut(len(query_parts), QUERIES_PER_BLOCK):
            best = RunningBest(k)
            own_filter = None if row_filter is None else row_filter.of_queries(first, last)
            for left, right in cut(len(item_parts), ROWS_PER_SELECTION):
                chunk = self._score_rows(query_parts[first:last], item_parts, left, right)  # (B, n)
                if own_filter is not None:
                    own_filter.hide(chunk, left)
                best.update(chunk, torch.arange(left, right, device=chunk.device))
            scores[first:last], rows[first:last] = best.result()
        return scores, rows

    @plain_arithmetic()
    def scan(
        self, vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
    ) -> Nearest:
        """Return the n best rows of a table by dot product."""
        return scan(vectors, table, n, row_filter, bounds=bounds)

    @plain_arithmetic()
    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score (B, N) of every query-item pair."""
        num_queries, similarity = len(query_parts), self.similarity
        bounds = query_parts.components.new_empty((num_queries, len(item_parts)))  # (B, N)
        values_per_row = num_queries * similarity.num_query_components * similarity.num_item_components

        def bound_block(first: int, last: int) -> None:
            bounds[:, first:last] = similarity.bounds(query_parts, item_parts[first:last].to(bounds.dtype))

        width = max(1, BOUND_VALUES // max(1, values_per_row))
        for_each_block(len(item_parts), width, bound_block, device=bounds.device)
        return bounds

    @plain_arithmetic()
    def top_k_above(
        self,
        query_parts: QueryParts,
        item_parts: ItemParts,
        k: int,
        thresholds: Tensor,
        row_filter: RowFilter | None = None,
    ) -> BestAbove:
        """Return the k best of the rows whose bound is at least the threshold (B,) of their query.

        If bounds would skip few rows, all rows are scored.
        """
        check_k(k, len(item_parts))
        bounds = self.bounds(query_parts, item_parts[::SAMPLE_STEP])  # (B, few)
        if self._are_most(bounds >= thresholds[:, None]):
            return self._top_k_of_all(query_parts, item_parts, k, row_filter)
        bounds = self.bounds(query_parts, item_parts)  # (B, N)
        if row_filter is not None:
            row_filter.hide(bounds, 0)
        is_candidate = (bounds >= thresholds[:, None]) & (bounds > -torch.inf)  # (B, N)
        if self._are_most(is_candidate):
            return self._top_k_of_all(query_parts, item_parts, k, row_filter)
        candidates, is_real = pack(is_candidate)  # (B, C)
        found = self.score_candidates(query_parts, item_parts, candidates).masked_fill(~is_real, -torch.inf)  # (B, C)
        scores, columns = select_best(found, min(k, found.shape[1]))  # (B, <= K)
        missing = (0, k - scores.shape[1])
        return BestAbove(
            scores=F.pad(scores, missing, value=-torch.inf),
            rows=F.pad(candidates.gather(1, columns), missing),
            num_scored=is_real.sum(dim=1),
            best_skipped=bounds.masked_fill(is_candidate, -torch.inf).amax(dim=1),
        )

    @plain_arithmetic()
    def best_by_component(
        self, query_parts: QueryParts, item_parts: ItemParts, n: int, m: int, row_filter: RowFilter | None = None
    ) -> BestByComponent:
        """Return the n best rows of each component pair, and the m rows with the best bounds."""
        vectors = query_parts.components / self.similarity.temperature  # (B, Pq, d)
        bounds = vectors.new_full((len(vectors), len(item_parts)), -torch.inf)  # (B, N)
        found = [
            scan(vectors, item_parts.components[:, component], n, row_filter, bounds=bounds)
            for component in range(self.similarity.num_item_components)
        ]
        best, rows = select_best(bounds, min(m, len(item_parts)))  # (B, m)
        return BestByComponent(
            rows=torch.stack([each.rows for each in found], dim=2).flatten(1, 2),
            scores=torch.stack([each.scores for each in found], dim=2).flatten(1, 2),
            bound_rows=rows.masked_fill(best == -torch.inf, NO_ROW),
            bounds=best,
        )

    def _are_most(self, is_candidate: Tensor) -> bool:
        """Return whether a query has to score most of the rows (B, n)."""
        if not is_candidate.numel():
            return False
        return float(is_candidate.sum(dim=1).max()) > COMPLETE_SHARE * is_candidate.shape[1]

    def _top_k_of_all(
        self, query_parts: QueryParts, item_parts: ItemParts, k: int, row_filter: RowFilter | None
    ) -> BestAbove:
        scores, rows = self.top_k(query_parts, item_parts, k, row_filter)  # (B, K)
        num_scored = torch.full_like(rows[:, 0], len(item_parts))  # (B,)
        if row_filter is not None:
            num_scored = row_filter.num_visible(len(query_parts), len(item_parts))
        return BestAbove(scores, rows, num_scored, scores.new_full((len(scores),), -torch.inf))

    @timed(Stage.SCORING)
    def _score_rows(self, query_parts: QueryParts, item_parts: ItemParts, first: int, last: int) -> Tensor:
        """Score the rows from first to last - 1, block by block."""
        scores = query_parts.components.new_empty(len(query_parts), last - first)  # (B, n)
        width = self._width(len(query_parts))

        def score_block(left: int, right: int) -> None:
            # The last block reaches back to full width: a narrower product would often round equal items differently.
            start = max(0, first + right - width)
            block = self.similarity.score(query_parts, item_parts[start : first + right].to(scores.dtype))  # (B, width)
            scores[:, left:right] = block[:, first + left - start :]

        for_each_block(last - first, width, score_block, device=scores.device)
        return check_scores(scores)

    def _score_own(self, query_parts: QueryParts, items: ItemRows, candidates: Tensor, scores: Tensor) -> None:
        """Write the scores (B, C) of a batch of queries with their own candidates (B, C), block by block."""

        def score_block(left: int, right: int) -> None:
            own = items[candidates[:, left:right]].to(scores.dtype)
            scores[:, left:right] = self.similarity.score_candidates(query_parts, own)

        for_each_block(
            candidates.shape[1],
            self._width(len(query_parts)),
            score_block,
            device=scores.device,
            blocks_per_core=LEAST_BLOCKS_PER_CORE,
        )

    def _width(self, num_queries: int) -> int:
        return scoring_width(self.similarity.values_per_pair, num_queries, self.pairs_per_block)
