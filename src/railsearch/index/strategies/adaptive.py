"""The search that stops as soon as its certificate is good enough."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_not_negative
from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.engines import NO_ROW
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import merge, score_rows
from railsearch.index.strategies.rest import scan_rest
from railsearch.kernels import RowFilter, select_best, unite
from railsearch.similarity import QueryParts

SHARE_IN_ORDER = 1 / 32
"""The share of items that are scored in order. If that is not enough, one pass scores all that may be needed."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Score items in the order of their best component until the gap is small enough or the budget is spent.

    If many items are needed and there is no budget, the rest of them are scored in one pass, in the order of storage.

    With the defaults the answer is exact. For each query, the result shows which limit ended the search: its `gap` is
    at most `max_gap`, or `num_scored` has reached `max_scored`.
    """

    max_gap: float = 0.0
    max_scored: int | None = None

    def __post_init__(self) -> None:
        check_not_negative(self.max_gap, name="max_gap")
        if self.max_scored is not None:
            check_count(self.max_scored, name="max_scored")

    def memory_needed(self, corpus: Corpus, num_queries: int, k: int) -> int:
        """Return the least bytes of a search: the bounds of all items, and the pieces that they are joined from."""
        num_copies = 1 if len(corpus.segments) == 1 else 2
        return num_copies * num_queries * len(corpus) * corpus.like.element_size()

    def find_rows(
        self,
        corpus: Corpus,
        query_parts: QueryParts,
        k: int,
        row_filter: RowFilter | None,
        *,
        floor: Tensor | None = None,
    ) -> Found:
        """Find the k best rows of each query; with a floor (B,), rows below it may be missing."""
        budget = len(corpus) if self.max_scored is None else self.max_scored
        if budget < k:
            raise InvalidInputError(f"k is {k} but max_scored is {budget}; ask for max_scored >= {k}.")
        start = Certificate.start(corpus, query_parts)
        bounds = _bounds_by_id(start, row_filter)  # (B, M) of items that are not scored yet
        num_queries, num_items = bounds.shape
        scores = bounds.new_full((num_queries, k), -torch.inf)  # (B, K)
        rows = torch.zeros_like(scores, dtype=torch.int64)  # (B, K)
        num_scored = torch.zeros(num_queries, dtype=torch.int64, device=bounds.device)  # (B,)
        ceiling = start.skip(bounds).ceiling.clone()  # (B,)
        active = torch.arange(num_queries, device=bounds.device)  # (A,) queries that are not done
        width, spent = max(2 * k, 64), 0
        lowest, below = torch.full_like(ceiling, -torch.inf), start.ceiling  # (B,)
        if floor is not None:
            is_below = bounds < start.thresholds(floor, max_gap=self.max_gap)[:, None]  # (B, M) never scored
            skipped = start.skip(bounds.masked_fill(~is_below, -torch.inf))
            lowest, below = floor, (skipped.at_most(floor) if self.max_gap == 0 else skipped).ceiling  # (B,)
            bounds.masked_fill_(is_below, -torch.inf)
            ceiling = start.skip(bounds).ceiling.clone()  # (B,)
            active = (ceiling > -torch.inf).nonzero().flatten()  # (A,)
        seen = rows[:, :0]  # (B, spent) rows that were scored in order
        while len(active):
            if self.max_scored is None and start.is_certifiable and spent > SHARE_IN_ORDER * num_items:
                so_far = Found(rows[active], scores[active], start.ceiling[active], num_scored[active])
                rest = RowFilter.nothing(device=rows.device) if row_filter is None else row_filter.of_some(active)
                done = scan_rest(
                    start.of_queries(active),
                    so_far,
                    rest.plus(seen[active]),
                    max_gap=self.max_gap,
                    floor=lowest[active],
                )
                rows[active], scores[active], num_scored[active] = done.rows, done.scores, done.num_scored
                ceiling[active] = done.ceiling
                break
            width = min(width, budget - spent, num_items - spent)
            best_bounds, chosen = select_best(bounds[active], width)  # (A, width)
            chosen_rows = chosen if corpus.places is None else corpus.rows[chosen]  # (A, width)
            new_rows, is_real = unite([chosen_rows.masked_fill(best_bounds == -torch.inf, NO_ROW)], len(corpus))
            new_scores = score_rows(corpus, query_parts[active], new_rows, is_real)  # (A, width)
            scores[active], rows[active] = merge(corpus, scores[active], rows[active], new_scores, new_rows)
            num_scored[active] += is_real.sum(dim=1)
            scored = new_rows.new_full((num_queries, new_rows.shape[1]), NO_ROW)  # (B, width)
            scored[active] = new_rows.masked_fill(~is_real, NO_ROW)
            seen = torch.cat([seen, scored], dim=1)  # (B, spent)
            bounds[active[:, None], chosen] = -torch.inf
            certificate = start.of_queries(active).skip(bounds[active])
            ceiling[active] = certificate.ceiling
            spent += width
            if spent >= min(budget, num_items):
                break
            reached = torch.maximum(scores[active, -1], lowest[active])  # (A,)
            active = active[certificate.is_open(reached, max_gap=self.max_gap)]
            width *= 2
        return Found(rows, scores, torch.maximum(ceiling, below), num_scored)


def _bounds_by_id(certificate: Certificate, row_filter: RowFilter | None) -> Tensor:
    """Return the bounds (B, M) of live items in the order of ids, so that ties do not depend on segments."""
    bounds = certificate.bounds(row_filter)  # (B, N)
    corpus = certificate.corpus
    return bounds if corpus.places is None else bounds[:, corpus.rows]
