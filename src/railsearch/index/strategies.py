"""HOW to find the top K: small frozen choices that a search is given (the paper's section 3).

Every strategy is the same four steps: choose candidates, score them with phi, keep K, and report the ceiling of
what was not scored. An answer is exact where that ceiling is not above the k-th score that was found.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_not_negative
from railsearch.index.corpus import Corpus
from railsearch.index.engines import NO_ROW, Flat
from railsearch.index.first_stage import best_by_average, best_per_component, one_more, reaches, unite
from railsearch.kernels import RowFilter, Stage, pack, select_best, timed
from railsearch.similarity import QueryParts

ROWS_PER_STRETCH = 8192
"""Items that a two-pass search decides on at once, with a full batch of queries; with few queries more."""
PAIRS_PER_STRETCH = 2**16
WHOLE_SHARE = 0.4
"""Share of a stretch that is to be scored from which on it is cheaper to score the whole of it, without bounds."""
MOST_STRETCHES_AT_ONCE = 8
"""Stretches that are scored whole before bounds are tried again: one at first, and twice as many each time in vain."""
GATHER_SHARE = 4
"""Where a filter leaves less than one in so many items, gathering them is cheaper than scoring all."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a strategy found: rows of the corpus, best first, and the ceiling of what it did not score."""

    rows: Tensor  # (B, K) int64
    scores: Tensor  # (B, K), minus infinity where there is no item left to give
    ceiling: Tensor  # (B,)
    num_scored: Tensor  # (B,) int64


@runtime_checkable
class Strategy(Protocol):
    """A way to find the k best rows."""

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        ...


@dataclass(frozen=True, slots=True)
class BruteForce:
    """Score every item: exact, and the measure of every other strategy."""

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        allowed = (
            None if row_filter is None or row_filter.is_allowed is None else row_filter.is_allowed.nonzero().flatten()
        )  # (A,)
        num_scored = len(corpus.ids) if allowed is None else len(allowed)
        if row_filter is not None and allowed is not None and GATHER_SHARE * len(allowed) < len(corpus):
            return self._find_among(corpus, query_parts, k, row_filter, allowed)
        all_scores, all_rows = [], []
        for stretch in corpus.stretches():
            first, last = stretch.first_row, stretch.first_row + len(stretch)
            own_filter = None if row_filter is None else row_filter.of_rows(first, last)
            scores, rows = corpus.kernel.top_k(
                query_parts, stretch.parts, min(k, len(stretch)), own_filter
            )  # (B, <= K)
            all_scores.append(scores)
            all_rows.append(rows + first)
        scores, rows = _keep_best(corpus, torch.cat(all_scores, dim=1), torch.cat(all_rows, dim=1), k)  # (B, K)
        return Found(
            rows=rows,
            scores=scores,
            ceiling=scores.new_full((len(rows),), -torch.inf),  # nothing was left unscored
            num_scored=torch.full_like(rows[:, 0], num_scored),
        )

    def _find_among(
        self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter, allowed: Tensor
    ) -> Found:
        """Gather the few rows (A,) that a filter leaves, instead of going through all."""
        rows = allowed.expand(len(query_parts), len(allowed))  # (B, A)
        scores = corpus.kernel.score_candidates(query_parts, corpus, rows)  # (B, A)
        row_filter.hide_among(scores, allowed)
        # Rows are ascending here, which settles ties already where ids are too.
        ties = None if corpus.places is None else corpus.tie_order(rows)
        best, columns = select_best(scores, min(k, len(allowed)), ties)  # (B, <= K)
        best, best_rows = _padded(best, rows.gather(1, columns), k)  # (B, K)
        is_open = torch.full_like(best[:, 0], -torch.inf)  # (B,) nothing was left unscored
        return Found(best_rows, best, is_open, torch.full_like(best_rows[:, 0], len(allowed)))


@dataclass(frozen=True, slots=True)
class PerComponent:
    """Score the n best items of each of the P component pairs, united (the paper's TopKPerEmbd).

    The ceiling is the best component score of any item that was not scored: the bound of Theorem 2, or a tighter one
    where the next best item of one pair was brought by another.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        return _find_by_component(corpus, query_parts, k, row_filter, per_component=self.n, by_average=0)


@dataclass(frozen=True, slots=True)
class Average:
    """Score the n items with the best average component score (the paper's TopKAvg).

    The fastest first stage, one dot product an item; but what it passes over has no better ceiling than the trivial
    one, 1 / temperature. Take Combined for a certificate.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        if self.n < k:
            raise InvalidInputError(
                f"k is {k} but Average({self.n}) scores only {self.n} items; use Average({k}) or more."
            )
        chosen = best_by_average(corpus, query_parts, one_more(corpus.engine, self.n), row_filter)  # (B, <= n + 1)
        rows, is_real = _enough(corpus, query_parts, [chosen[:, : self.n]], k, row_filter)  # (B, C)
        found = _score_chosen(corpus, query_parts, rows, is_real, k)
        if not corpus.engine.is_exact:
            return found
        # Where a list ends early, or is as long as the corpus, nothing was passed over.
        is_all = (chosen == NO_ROW).any(dim=1) | (len(corpus) <= min(self.n, chosen.shape[1]))  # (B,)
        ceiling = corpus.trivial_ceiling(query_parts).masked_fill(is_all, -torch.inf)  # (B,)
        return Found(found.rows, found.scores, ceiling, found.num_scored)


@dataclass(frozen=True, slots=True)
class Combined:
    """Score what PerComponent(per_component) and Average(by_average) bring together (the paper's CombTopK)."""

    per_component: int
    by_average: int

    def __post_init__(self) -> None:
        check_count(self.per_component, name="per_component")
        check_count(self.by_average, name="by_average")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        return _find_by_component(
            corpus, query_parts, k, row_filter, per_component=self.per_component, by_average=self.by_average
        )


@dataclass(frozen=True, slots=True)
class TwoPass:
    """Exact: a first pass gives a k-th score, a second scores every item whose best component reaches it (Algorithm 1).

    The second pass goes through the corpus once, stretch by stretch, and the k-th score rises on the way. Where most
    of a stretch has to be scored, bounds are not worth their cost: it is scored whole, and so are the next ones.
    """

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        num_seeds = max(4 * k, 256)
        if corpus.engine.max_n is not None:
            num_seeds = min(num_seeds, corpus.engine.max_n)
        seeds = best_by_average(corpus, query_parts, num_seeds, row_filter)  # (B, n)
        first_pass = _score_chosen(corpus, query_parts, *unite([seeds], len(corpus)), k)
        rest = (RowFilter.nothing(device=seeds.device) if row_filter is None else row_filter).plus(seeds)
        if corpus.engine.is_exact and corpus.engine.supports_threshold:
            return _second_pass_by_engine(corpus, query_parts, row_filter, first_pass, rest)
        return _second_pass(corpus, query_parts, first_pass, rest)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Score items in the order of their best component until the gap is small enough or the budget is spent.

    With the defaults the answer is exact. The result says which end a query came to: its `gap` is at most `max_gap`,
    or `num_scored` has reached `max_scored`.
    """

    max_gap: float = 0.0
    max_scored: int | None = None

    def __post_init__(self) -> None:
        check_not_negative(self.max_gap, name="max_gap")
        if self.max_scored is not None:
            check_count(self.max_scored, name="max_scored")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        budget = len(corpus) if self.max_scored is None else self.max_scored
        if budget < k:
            raise InvalidInputError(f"k is {k} but max_scored is {budget}; ask for max_scored >= {k}.")
        slack = corpus.slack(query_parts)  # (B,)
        bounds = corpus.bounds(query_parts, row_filter)  # (B, N) of items not scored yet
        if corpus.places is not None:
            bounds = bounds[:, corpus.rows]  # (B, M) in the order of ids, so that ties do not depend on segments
        num_queries = len(query_parts)
        scores = bounds.new_full((num_queries, k), -torch.inf)  # (B, K)
        rows = torch.zeros_like(scores, dtype=torch.int64)  # (B, K)
        num_scored = torch.zeros_like(slack, dtype=torch.int64)  # (B,)
        ceiling = bounds.amax(dim=1) + slack  # (B,)
        active = torch.arange(num_queries, device=bounds.device)  # (A,) queries that go on
        width, spent = max(2 * k, 64), 0
        while len(active):
            width = min(width, budget - spent, bounds.shape[1] - spent)
            best_bounds, chosen = select_best(bounds[active], width)  # (A, width)
            chosen_rows = chosen if corpus.places is None else corpus.rows[chosen]  # (A, width)
            new_rows, is_real = unite([chosen_rows.masked_fill(best_bounds == -torch.inf, NO_ROW)], len(corpus))
            own = query_parts[active]
            new_scores = corpus.kernel.score_candidates(own, corpus, new_rows)
            new_scores = new_scores.masked_fill(~is_real, -torch.inf)  # (A, width)
            scores[active], rows[active] = _merge(corpus, scores[active], rows[active], new_scores, new_rows)
            num_scored[active] += is_real.sum(dim=1)
            bounds[active[:, None], chosen] = -torch.inf
            ceiling[active] = bounds[active].amax(dim=1) + slack[active]
            spent += width
            gap = ceiling[active] - scores[active, -1]  # (A,)
            # At a gap of 0 an item that was not scored could still tie, and have the smaller row.
            is_open = (gap >= 0 if self.max_gap == 0 else gap > self.max_gap) & (ceiling[active] > -torch.inf)  # (A,)
            active = active[is_open] if spent < min(budget, bounds.shape[1]) else active[:0]
            width *= 2
        return Found(rows, scores, ceiling, num_scored)


def _find_by_component(
    corpus: Corpus,
    query_parts: QueryParts,
    k: int,
    row_filter: RowFilter | None,
    *,
    per_component: int,
    by_average: int,
) -> Found:
    """Choose by component, and by average where that is asked for, or where a union would be smaller than k."""
    num_pairs = corpus.similarity.num_query_components * corpus.similarity.num_item_components
    if per_component * num_pairs >= len(corpus.ids):
        # So many candidates may be the whole corpus, which is better scored without a first stage.
        return BruteForce().find_rows(corpus, query_parts, k, row_filter)
    chosen = best_per_component(corpus, query_parts, per_component, row_filter)
    lists = [chosen.rows]  # (B, P * n)
    if by_average:
        lists.append(best_by_average(corpus, query_parts, by_average, row_filter))
    rows, is_real = _enough(corpus, query_parts, lists, k, row_filter)  # (B, C)
    found = _score_chosen(corpus, query_parts, rows, is_real, k)
    ceiling = chosen.ceiling_without(rows, is_real) + corpus.slack(query_parts)  # (B,)
    return Found(found.rows, found.scores, ceiling, found.num_scored)


def _second_pass(corpus: Corpus, query_parts: QueryParts, first_pass: Found, rest: RowFilter) -> Found:
    """Go through the rest of the corpus once, stretch by stretch; the k-th score rises on the way."""
    scores, rows, num_scored = first_pass.scores, first_pass.rows, first_pass.num_scored
    slack = corpus.slack(query_parts)  # (B,)
    ceiling = torch.full_like(slack, -torch.inf)  # (B,)
    num_whole, patience = 0, 1
    for stretch in corpus.stretches(max(ROWS_PER_STRETCH, PAIRS_PER_STRETCH // max(1, len(query_parts)))):
        if not num_whole:
            bounds = corpus.bounds(query_parts, rest, stretch)  # (B, n)
            is_open = (bounds >= (scores[:, -1] - slack)[:, None]) & (bounds > -torch.inf)  # (B, n)
            candidates, is_real = pack(is_open)  # (B, C)
            if candidates.shape[1] > WHOLE_SHARE * len(stretch):
                num_whole, patience = patience, min(2 * patience, MOST_STRETCHES_AT_ONCE)
            else:
                patience = 1
        if num_whole:
            num_whole -= 1
            new_scores = corpus.kernel.score(query_parts, stretch.parts, 0, len(stretch))  # (B, n)
            rest.hide(new_scores, stretch.first_row)
            new_rows = torch.arange(len(stretch), device=rows.device).expand_as(new_scores)
        else:
            passed_over = bounds.masked_fill(is_open, -torch.inf).amax(dim=1)  # (B,)
            ceiling = torch.maximum(ceiling, passed_over + slack)
            new_scores = corpus.kernel.score_candidates(query_parts, stretch.parts, candidates)  # (B, C)
            new_scores, new_rows = new_scores.masked_fill(~is_real, -torch.inf), candidates
        num_scored = num_scored + (new_scores > -torch.inf).sum(dim=1)
        scores, rows = _merge(corpus, scores, rows, new_scores, new_rows + stretch.first_row)  # (B, K)
    # What was passed over is below a k-th score by more than rounding; adding the slack back may round upward.
    return Found(rows, scores, torch.minimum(ceiling, scores[:, -1]), num_scored)


def _second_pass_by_engine(
    corpus: Corpus, query_parts: QueryParts, row_filter: RowFilter | None, first_pass: Found, rest: RowFilter
) -> Found:
    """Ask the engine for every item that reaches the k-th score of the first pass, and score those."""
    k = first_pass.scores.shape[1]
    if not corpus.similarity.is_certifiable:
        return BruteForce().find_rows(corpus, query_parts, k, row_filter)
    thresholds = first_pass.scores[:, -1] - corpus.slack(query_parts)  # (B,)
    candidates, is_real = pack(reaches(corpus, query_parts, thresholds, rest))  # (B, C)
    if candidates.shape[1] > WHOLE_SHARE * len(corpus):
        return BruteForce().find_rows(corpus, query_parts, k, row_filter)
    new_scores = corpus.kernel.score_candidates(query_parts, corpus, candidates).masked_fill(~is_real, -torch.inf)
    scores, rows = _merge(corpus, first_pass.scores, first_pass.rows, new_scores, candidates)  # (B, K)
    return Found(rows, scores, first_pass.scores[:, -1], first_pass.num_scored + is_real.sum(dim=1))


def _enough(
    corpus: Corpus, query_parts: QueryParts, lists: list[Tensor], k: int, row_filter: RowFilter | None
) -> tuple[Tensor, Tensor]:
    """Unite lists of rows (B, n); where that leaves a query fewer than k, add the k best by average."""
    rows, is_real = unite(lists, len(corpus))  # (B, C)
    if len(rows) and int(is_real.sum(dim=1).min()) < k:
        # An engine that may miss rows may also find too few: a scan does not.
        more = best_by_average(corpus, query_parts, k, row_filter, engine=Flat())
        rows, is_real = unite([*lists, more], len(corpus))
    return rows, is_real


def _score_chosen(corpus: Corpus, query_parts: QueryParts, rows: Tensor, is_real: Tensor, k: int) -> Found:
    """Score each query's own rows (B, C), ascending, and keep the k best; the ceiling is left open."""
    scores = corpus.kernel.score_candidates(query_parts, corpus, rows)  # (B, C)
    scores = scores.masked_fill(~is_real, -torch.inf)
    # Rows are ascending here, which settles ties already where ids are too.
    ties = None if corpus.places is None else corpus.tie_order(rows)
    best, columns = select_best(scores, min(k, scores.shape[1]), ties)  # (B, <= K)
    best, best_rows = _padded(best, rows.gather(1, columns), k)  # (B, K)
    return Found(best_rows, best, torch.full_like(best[:, 0], torch.inf), is_real.sum(dim=1))


@timed(Stage.SELECTION)
def _merge(corpus: Corpus, scores: Tensor, rows: Tensor, new_scores: Tensor, new_rows: Tensor) -> tuple[Tensor, Tensor]:
    """The K best of K (B, K) and of others (B, n), best first."""
    columns, is_real = pack((new_scores >= scores[:, -1:]) & (new_scores > -torch.inf))  # (B, few)
    merged = torch.cat([scores, new_scores.gather(1, columns).masked_fill(~is_real, -torch.inf)], dim=1)
    return _keep_best(corpus, merged, torch.cat([rows, new_rows.gather(1, columns)], dim=1), scores.shape[1])


@timed(Stage.SELECTION)
def _keep_best(corpus: Corpus, scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of scores (B, n) of rows (B, n), best first; of equal scores the smaller id."""
    best, columns = select_best(scores, k, corpus.tie_order(rows))  # (B, K)
    return best, rows.gather(1, columns)


def _padded(scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Fill up to k places with minus infinity, where there were fewer items to give."""
    missing = k - scores.shape[1]
    if not missing:
        return scores, rows
    return F.pad(scores, (0, missing), value=-torch.inf), F.pad(rows, (0, missing))
