"""The native kernel: mixtures of component scores in C++, with the same bits for a query-item pair everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from railsearch.kernels.checks import check_candidates, check_k, check_scoring, not_finite
from railsearch.kernels.contract import BestAbove, BestByComponent, ItemRows, Nearest, Roundoff
from railsearch.kernels.native.addresses import (
    FilterAddresses,
    ItemAddresses,
    QueryAddresses,
    can_read_items,
    can_read_queries,
)
from railsearch.kernels.native.forms import Computed, FormCache
from railsearch.kernels.native.library import chosen_isa, library
from railsearch.kernels.native.scan import scan
from railsearch.kernels.row_filter import RowFilter
from railsearch.kernels.stages import Stage, timed
from railsearch.kernels.torch_kernel import TorchKernel
from railsearch.similarity import ItemParts, LateInteraction, MixtureOfLogits, QueryParts

UNIT = 2.0**-24
"""The relative error of one fused multiply-add in fp32."""
SMALLEST = 2.0**-149
"""Subnormal numbers are kept, so that no greater value is rounded to zero."""


@dataclass(frozen=True, slots=True, eq=False)
class NativeKernel:
    """C++ that keeps items in vector lanes and sums in one fixed order.

    The score of a query-item pair has the same 32 bits in every block, batch, segment layout, instruction set and
    number of threads. No score is above its bound, not even by rounding: both come from the same component scores.

    Parts that are not fp32 queries and fp32, fp16 or bf16 items on a CPU are computed with torch.

    Args:
        similarity: a MixtureOfLogits, a LateInteraction or a DotProduct, in eval mode.
    """

    similarity: Computed
    _forms: FormCache = field(default_factory=FormCache, init=False, repr=False)

    @property
    def name(self) -> str:
        """The name for reports, with the instruction set."""
        return f"native ({chosen_isa()})"

    @property
    def roundoff(self) -> Roundoff:
        """The rounding error of one operation.

        A component score is a sum of d products in ascending order, one fused multiply-add each: it is off by at
        most d roundings of the product of both lengths.
        """
        return Roundoff(relative=UNIT, underflow=SMALLEST)

    @property
    def is_bit_stable(self) -> bool:
        """True: items lie in lanes, which never meet."""
        return True

    @timed(Stage.SCORING)
    def score(self, query_parts: QueryParts, item_parts: ItemParts, first: int, last: int) -> Tensor:
        """Return the scores (B, last - first) of every query with the rows from first to last - 1."""
        own = item_parts[first:last]
        if not self._can_read(query_parts, [own]):
            return self._torch.score(query_parts, item_parts, first, last)
        return self._all_pairs(query_parts, own, is_bound=False)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score (B, N) of every query-item pair."""
        if not self._can_read(query_parts, [item_parts]):
            return self._torch.bounds(query_parts, item_parts)
        return self._all_pairs(query_parts, item_parts, is_bound=True)

    @timed(Stage.SCORING)
    def score_candidates(self, query_parts: QueryParts, items: ItemRows, candidates: Tensor) -> Tensor:
        """Return the scores (B, C) of each query with its own rows, the candidates (B, C)."""
        check_candidates(candidates, num_queries=len(query_parts), num_items=len(items))
        pieces, rows = _pieces(items, candidates)
        if not self._can_read(query_parts, pieces) or rows.device.type != "cpu":
            return self._torch.score_candidates(query_parts, items, candidates)
        self._check(query_parts, pieces)
        scores = torch.empty(candidates.shape, dtype=torch.float32)  # (B, C)
        if not scores.numel():
            return scores
        queries, own, rows = QueryAddresses(query_parts), ItemAddresses(pieces), rows.contiguous()
        is_finite = library.score_candidates(
            chosen_isa(),
            torch.get_num_threads(),
            self._forms.form_of(self.similarity),
            queries.components,
            queries.gate,
            queries.count,
            own.items,
            rows.data_ptr(),
            rows.shape[1],
            scores.data_ptr(),
        )
        if not is_finite:
            raise not_finite()
        return scores

    @timed(Stage.SCORING)
    def top_k(
        self, query_parts: QueryParts, item_parts: ItemParts, k: int, row_filter: RowFilter | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows (B, K) of the k best items of each query, best first; of equal scores the smaller row.

        If the filter leaves a query fewer than k items, the rest of its scores are minus infinity. The best are kept
        while the items are scored: no (B, N) scores are ever in memory.
        """
        if not self._can_read(query_parts, [item_parts]):
            return self._torch.top_k(query_parts, item_parts, k, row_filter)
        self._check(query_parts, [item_parts])
        check_k(k, len(item_parts))
        scores = torch.empty(len(query_parts), k, dtype=torch.float32)  # (B, K)
        rows = torch.empty(len(query_parts), k, dtype=torch.int64)  # (B, K)
        queries, own = QueryAddresses(query_parts), ItemAddresses([item_parts])
        own_filter = FilterAddresses(row_filter, len(query_parts), len(item_parts))
        is_finite = library.top_k(
            chosen_isa(),
            torch.get_num_threads(),
            self._forms.form_of(self.similarity),
            queries.components,
            queries.gate,
            queries.count,
            own.items,
            own_filter.filter,
            k,
            scores.data_ptr(),
            rows.data_ptr(),
        )
        if not is_finite:
            raise not_finite()
        return scores, rows.clamp_min_(0)

    def scan(
        self, vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
    ) -> Nearest:
        """Return the n best rows of a table by dot product."""
        return scan(vectors, table, n, row_filter, bounds=bounds)

    @timed(Stage.SCORING)
    def top_k_above(
        self,
        query_parts: QueryParts,
        item_parts: ItemParts,
        k: int,
        thresholds: Tensor,
        row_filter: RowFilter | None = None,
    ) -> BestAbove:
        """Return the k best of the rows whose bound is at least the threshold (B,) of their query.

        Component scores are computed once, for the bound and for the score; the gate is computed for rows that reach
        the threshold. So this is never much slower than `top_k`.
        """
        if not self._can_read(query_parts, [item_parts]) or not can_read_queries(thresholds):
            return self._torch.top_k_above(query_parts, item_parts, k, thresholds, row_filter)
        self._check(query_parts, [item_parts])
        check_k(k, len(item_parts))
        num_queries, thresholds = len(query_parts), thresholds.contiguous()
        assert thresholds.shape == (num_queries,)
        found = BestAbove(
            scores=torch.empty(num_queries, k),
            rows=torch.empty(num_queries, k, dtype=torch.int64),
            num_scored=torch.empty(num_queries, dtype=torch.int64),
            best_skipped=torch.empty(num_queries),
        )
        queries, own = QueryAddresses(query_parts), ItemAddresses([item_parts])
        own_filter = FilterAddresses(row_filter, num_queries, len(item_parts))
        is_finite = library.top_k_above(
            chosen_isa(),
            torch.get_num_threads(),
            self._forms.form_of(self.similarity),
            queries.components,
            queries.gate,
            queries.count,
            own.items,
            own_filter.filter,
            k,
            thresholds.data_ptr(),
            found.scores.data_ptr(),
            found.rows.data_ptr(),
            found.num_scored.data_ptr(),
            found.best_skipped.data_ptr(),
        )
        if not is_finite:
            raise not_finite()
        found.rows.clamp_min_(0)
        return found

    def best_by_component(
        self, query_parts: QueryParts, item_parts: ItemParts, n: int, m: int, row_filter: RowFilter | None = None
    ) -> BestByComponent:
        """Return the n best rows of each component pair, and the m rows with the best bounds.

        All pairs are computed in one pass over the items, without a (B, N) matrix of bounds.
        """
        if not self._can_read(query_parts, [item_parts]):
            return self._torch.best_by_component(query_parts, item_parts, n, m, row_filter)
        self._check(query_parts, [item_parts])
        num_queries, num_items = len(query_parts), len(item_parts)
        num_pairs = self.similarity.num_query_components * self.similarity.num_item_components
        by_pair, by_bound = (num_queries, num_pairs, min(n, num_items)), (num_queries, min(m, num_items))
        found = BestByComponent(
            rows=torch.empty(by_pair, dtype=torch.int64),
            scores=torch.empty(by_pair),
            bound_rows=torch.empty(by_bound, dtype=torch.int64),
            bounds=torch.empty(by_bound),
        )
        queries, own = QueryAddresses(query_parts), ItemAddresses([item_parts])
        own_filter = FilterAddresses(row_filter, num_queries, num_items)
        is_finite = library.best_by_component(
            chosen_isa(),
            torch.get_num_threads(),
            self._forms.form_of(self.similarity),
            queries.components,
            queries.count,
            own.items,
            own_filter.filter,
            by_pair[2],
            by_bound[1],
            found.scores.data_ptr(),
            found.rows.data_ptr(),
            found.bounds.data_ptr(),
            found.bound_rows.data_ptr(),
        )
        if not is_finite:
            raise not_finite()
        return found

    @property
    def _torch(self) -> TorchKernel:
        return TorchKernel(self.similarity)

    def _can_read(self, query_parts: QueryParts, pieces: Sequence[ItemParts]) -> bool:
        return can_read_queries(query_parts.components, query_parts.gate) and can_read_items(pieces)

    def _check(self, query_parts: QueryParts, pieces: Sequence[ItemParts]) -> None:
        """Check all that the compiled code relies on."""
        similarity = self.similarity
        query_size = item_size = similarity.num_query_components * similarity.num_item_components
        if isinstance(similarity, LateInteraction):
            query_size, item_size = 2 * similarity.num_query_components, similarity.num_item_components
        for parts in pieces:
            check_scoring(similarity, query_parts, parts)
            if isinstance(similarity, MixtureOfLogits):
                similarity.gate.check_sides(query_parts.gate, parts.gate)
            elif isinstance(similarity, LateInteraction):
                similarity.check_gates(query_parts, parts)
            assert parts.gate is None or parts.gate.shape == (len(parts), item_size)
        assert query_parts.gate is None or query_parts.gate.shape == (len(query_parts), query_size)

    def _all_pairs(self, query_parts: QueryParts, item_parts: ItemParts, *, is_bound: bool) -> Tensor:
        self._check(query_parts, [item_parts])
        scores = torch.empty(len(query_parts), len(item_parts), dtype=torch.float32)  # (B, N)
        if not scores.numel():
            return scores
        queries, own = QueryAddresses(query_parts), ItemAddresses([item_parts])
        is_finite = library.score(
            chosen_isa(),
            torch.get_num_threads(),
            self._forms.form_of(self.similarity),
            queries.components,
            queries.gate,
            queries.count,
            own.items,
            is_bound,
            scores.data_ptr(),
            scores.stride(0),
        )
        if not is_finite:
            raise not_finite()
        return scores


def _pieces(items: ItemRows, candidates: Tensor) -> tuple[Sequence[ItemParts], Tensor]:
    """Return the parts that candidates (B, C) are rows of, in place if they can be read there."""
    if isinstance(items, ItemParts):
        return [items], candidates
    pieces_of = getattr(items, "pieces_of", None)  # faster than isinstance with a Protocol
    if pieces_of is not None:
        return pieces_of(candidates), candidates
    gathered = items[candidates]  # components (B, C, Px, d)
    gate = None if gathered.gate is None else gathered.gate.flatten(0, 1)  # (B * C, P)
    rows = torch.arange(candidates.numel()).view(candidates.shape)  # (B, C)
    return [ItemParts(gathered.components.flatten(0, 1), gate, gathered.model)], rows
