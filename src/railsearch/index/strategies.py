"""HOW to find the top K: small frozen choices that a search is given (the paper's section 3).

Every strategy is the same four steps: choose candidates, score them with phi, keep K, and report the ceiling of
what was not scored. An answer is exact where that ceiling is not above the k-th score that was found.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.errors import InvalidInputError
from railsearch.index.corpus import Corpus
from railsearch.index.first_stage import NO_ROW, best_by_average, best_per_component, unite
from railsearch.inputs import check_count, check_not_negative
from railsearch.scoring import Hidden, Stage, pack, score_all, score_candidates, select_best, timed, top_k
from railsearch.similarity import QueryParts

ROWS_PER_STRETCH = 8192
"""Items that a two-pass search decides on at once."""
WHOLE_SHARE = 0.4
"""Share of a stretch that is to be scored from which on it is cheaper to score the whole of it, without bounds."""
STRETCHES_AT_ONCE = 8
"""Stretches that are scored whole before bounds are tried again."""


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

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        ...


@dataclass(frozen=True, slots=True)
class BruteForce:
    """Score every item: exact, and the measure of every other strategy."""

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        scores, rows = top_k(corpus.similarity, query_parts, corpus.parts, k, hidden=hidden)
        return Found(
            rows=rows,
            scores=scores,
            ceiling=scores.new_full((len(rows),), -torch.inf),  # nothing was left unscored
            num_scored=torch.full_like(rows[:, 0], len(corpus)),
        )


@dataclass(frozen=True, slots=True)
class PerComponent:
    """Score the n best items of each of the P component pairs, united (the paper's TopKPerEmbd).

    The ceiling is the best component score of any item that was not scored: the bound of Theorem 2, or a tighter one
    where the next best item of one pair was brought by another.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        return _find_by_component(corpus, query_parts, k, hidden, per_component=self.n, by_average=0)


@dataclass(frozen=True, slots=True)
class Average:
    """Score the n items with the best average component score (the paper's TopKAvg).

    The fastest first stage, one dot product an item; but what it passes over has no better ceiling than the trivial
    one, 1 / temperature. Take Combined for a certificate.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        if self.n < k:
            raise InvalidInputError(
                f"k is {k} but Average({self.n}) scores only {self.n} items; use Average({k}) or more."
            )
        chosen = best_by_average(corpus, query_parts, self.n + 1, hidden)  # (B, <= n + 1), one more to see if there is
        found = _score_chosen(corpus, query_parts, *unite([chosen[:, : self.n]], len(corpus)), k)
        is_all = (chosen[:, self.n :] == NO_ROW).all(dim=1)  # (B,) nothing was passed over
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

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        return _find_by_component(
            corpus, query_parts, k, hidden, per_component=self.per_component, by_average=self.by_average
        )


@dataclass(frozen=True, slots=True)
class TwoPass:
    """Exact: a first pass gives a k-th score, a second scores every item whose best component reaches it (Algorithm 1).

    The second pass goes through the corpus once, stretch by stretch, and the k-th score rises on the way. Where most
    of a stretch has to be scored, bounds are not worth their cost: it is scored whole, and so are the next ones.
    """

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        seeds = best_by_average(corpus, query_parts, max(4 * k, 256), hidden)  # (B, n)
        first_pass = _score_chosen(corpus, query_parts, *unite([seeds], len(corpus)), k)
        scores, rows, num_scored = first_pass.scores, first_pass.rows, first_pass.num_scored
        rest = (Hidden.nothing(device=seeds.device) if hidden is None else hidden).plus(seeds)
        slack = corpus.slack(query_parts)  # (B,)
        ceiling = torch.full_like(slack, -torch.inf)  # (B,)
        num_whole = 0
        for first in range(0, len(corpus), ROWS_PER_STRETCH):
            stretch = corpus.between(first, first + ROWS_PER_STRETCH)
            if not num_whole:
                bounds = stretch.bounds(query_parts, rest, first)  # (B, n)
                is_open = (bounds >= (scores[:, -1] - slack)[:, None]) & (bounds > -torch.inf)  # (B, n)
                candidates, is_real = pack(is_open)  # (B, C)
                if candidates.shape[1] > WHOLE_SHARE * len(stretch):
                    num_whole = STRETCHES_AT_ONCE
            if num_whole:
                num_whole -= 1
                new_scores = score_all(corpus.similarity, query_parts, stretch.parts)  # (B, n)
                rest.hide(new_scores, first)
                new_rows = torch.arange(first, first + len(stretch), device=rows.device).expand_as(new_scores)
            else:
                passed_over = bounds.masked_fill(is_open, -torch.inf).amax(dim=1)  # (B,)
                ceiling = torch.maximum(ceiling, passed_over + slack)
                new_scores = score_candidates(corpus.similarity, query_parts, stretch.parts, candidates)  # (B, C)
                new_scores, new_rows = new_scores.masked_fill(~is_real, -torch.inf), candidates + first
            num_scored = num_scored + (new_scores > -torch.inf).sum(dim=1)
            scores, rows = _merge(scores, rows, new_scores, new_rows)  # (B, K)
        # What was passed over is below a k-th score by more than rounding; adding the slack back may round upward.
        return Found(rows, scores, torch.minimum(ceiling, scores[:, -1]), num_scored)


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

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None) -> Found:
        """Find the k best rows of each query."""
        budget = len(corpus) if self.max_scored is None else self.max_scored
        if budget < k:
            raise InvalidInputError(f"k is {k} but max_scored is {budget}; ask for max_scored >= {k}.")
        slack = corpus.slack(query_parts)  # (B,)
        bounds = corpus.bounds(query_parts, hidden)  # (B, N) of items not scored yet
        num_queries = len(query_parts)
        scores = bounds.new_full((num_queries, k), -torch.inf)  # (B, K)
        rows = torch.zeros_like(scores, dtype=torch.int64)  # (B, K)
        num_scored = torch.zeros_like(slack, dtype=torch.int64)  # (B,)
        ceiling = bounds.amax(dim=1) + slack  # (B,)
        active = torch.arange(num_queries, device=bounds.device)  # (A,) queries that go on
        width, spent = max(2 * k, 64), 0
        while len(active):
            width = min(width, budget - spent, len(corpus) - spent)
            best_bounds, chosen = bounds[active].topk(width, dim=1)  # (A, width)
            new_rows, is_real = unite([chosen.masked_fill(best_bounds == -torch.inf, NO_ROW)], len(corpus))
            own = query_parts[active]
            new_scores = score_candidates(corpus.similarity, own, corpus.parts, new_rows)
            new_scores = new_scores.masked_fill(~is_real, -torch.inf)  # (A, width)
            scores[active], rows[active] = _merge(scores[active], rows[active], new_scores, new_rows)
            num_scored[active] += is_real.sum(dim=1)
            bounds[active[:, None], chosen] = -torch.inf
            ceiling[active] = bounds[active].amax(dim=1) + slack[active]
            spent += width
            gap = ceiling[active] - scores[active, -1]  # (A,)
            # At a gap of 0 an item that was not scored could still tie, and have the smaller row.
            is_open = (gap >= 0 if self.max_gap == 0 else gap > self.max_gap) & (ceiling[active] > -torch.inf)  # (A,)
            active = active[is_open] if spent < min(budget, len(corpus)) else active[:0]
            width *= 2
        return Found(rows, scores, ceiling, num_scored)


def _find_by_component(
    corpus: Corpus, query_parts: QueryParts, k: int, hidden: Hidden | None, *, per_component: int, by_average: int
) -> Found:
    """Choose by component, and by average where that is asked for, or where a union would be smaller than k."""
    num_pairs = corpus.similarity.num_query_components * corpus.similarity.num_item_components
    if per_component * num_pairs >= len(corpus):
        # So many candidates may be the whole corpus, which is better scored without a first stage.
        return BruteForce().find_rows(corpus, query_parts, k, hidden)
    chosen, bounds = best_per_component(corpus, query_parts, per_component, hidden)  # (B, P * n), (B, N)
    lists = [chosen]
    if by_average:
        lists.append(best_by_average(corpus, query_parts, by_average, hidden))
    rows, is_real = unite(lists, len(corpus))  # (B, C)
    if len(rows) and int(is_real.sum(dim=1).min()) < k:
        rows, is_real = unite([*lists, best_by_average(corpus, query_parts, k, hidden)], len(corpus))
    found = _score_chosen(corpus, query_parts, rows, is_real, k)
    if rows.shape[1]:
        bounds.scatter_(1, torch.where(is_real, rows, rows[:, :1]), -torch.inf)  # (B, N) of what was passed over
    ceiling = bounds.amax(dim=1) + corpus.slack(query_parts)  # (B,)
    return Found(found.rows, found.scores, ceiling, found.num_scored)


def _score_chosen(corpus: Corpus, query_parts: QueryParts, rows: Tensor, is_real: Tensor, k: int) -> Found:
    """Score each query's own rows (B, C), ascending, and keep the k best; the ceiling is left open."""
    scores = score_candidates(corpus.similarity, query_parts, corpus.parts, rows)  # (B, C)
    scores = scores.masked_fill(~is_real, -torch.inf)
    best, columns = select_best(scores, min(k, scores.shape[1]))  # (B, <= K)
    best, best_rows = _padded(best, rows.gather(1, columns), k)
    return Found(best_rows, best, torch.full_like(best[:, 0], torch.inf), is_real.sum(dim=1))


@timed(Stage.SELECTION)
def _merge(scores: Tensor, rows: Tensor, new_scores: Tensor, new_rows: Tensor) -> tuple[Tensor, Tensor]:
    """The K best of K (B, K) and of others (B, n), best first; of equal scores the smaller row."""
    columns, is_real = pack((new_scores >= scores[:, -1:]) & (new_scores > -torch.inf))  # (B, few)
    merged = torch.cat([scores, new_scores.gather(1, columns).masked_fill(~is_real, -torch.inf)], dim=1)
    merged_rows, order = torch.cat([rows, new_rows.gather(1, columns)], dim=1).sort(dim=1, stable=True)
    best, places = select_best(merged.gather(1, order), scores.shape[1])  # (B, K)
    return best, merged_rows.gather(1, places)


def _padded(scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Fill up to k places with minus infinity, where there were fewer items to give."""
    missing = k - scores.shape[1]
    if not missing:
        return scores, rows
    return F.pad(scores, (0, missing), value=-torch.inf), F.pad(rows, (0, missing))
