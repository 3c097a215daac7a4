"""Tuning: the cheapest strategy that reaches a recall, with a guarantee for queries like the sample."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.progress import measuring
from railsearch.foundation.results import SearchResult
from railsearch.index.strategies import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    PerComponent,
    Strategy,
    TwoPass,
    Weighted,
)
from railsearch.index.strategy_text import format_strategy
from railsearch.similarity import QueryParts

EXACT: tuple[Strategy, ...] = (BruteForce(), TwoPass(), Adaptive())
NUM_TRIALS = 3
"""Strategies that may be tested on held-out queries; they share the allowed error."""
QUERIES_PER_BATCH = 32
TIE = 1e-5
"""An item within this relative distance of the k-th score ties with it and is not a miss."""


@dataclass(frozen=True, slots=True)
class TuningRow:
    """The measurements of one strategy."""

    strategy: Strategy
    recall: float
    """Mean recall on the first half of the sample; 1 for exact strategies."""
    guaranteed_recall: float | None
    """Lower confidence bound on the held-out half; None if the strategy was not tested there."""
    median_seconds: float
    p95_seconds: float
    num_scored: float


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The chosen strategy, and all measurements, cheapest first."""

    chosen: Strategy
    is_exact: bool
    """True if no approximate strategy both reached the target and was cheaper than an exact one."""
    target_recall: float
    confidence: float
    k: int
    rows: tuple[TuningRow, ...]

    @property
    def guaranteed_recall(self) -> float | None:
        """The recall that the chosen strategy reaches with the confidence asked for."""
        return next(row.guaranteed_recall for row in self.rows if row.strategy == self.chosen)

    def to_dict(self) -> dict[str, bool | float | str | list[dict[str, float | str | None]]]:
        """Return the report with strategies as text, ready for JSON."""
        rows: list[dict[str, float | str | None]] = [
            {
                "strategy": format_strategy(row.strategy),
                "recall": row.recall,
                "guaranteed_recall": row.guaranteed_recall,
                "median_seconds": row.median_seconds,
                "p95_seconds": row.p95_seconds,
                "num_scored": row.num_scored,
            }
            for row in self.rows
        ]
        return {
            "chosen": format_strategy(self.chosen),
            "is_exact": self.is_exact,
            "target_recall": self.target_recall,
            "confidence": self.confidence,
            "k": self.k,
            "rows": rows,
        }

    def __str__(self) -> str:
        head = f"{'strategy':<46} {'recall':>7} {'at least':>9} {'median ms':>10} {'p95 ms':>8} {'scored':>9}"
        lines = [
            f"{row.strategy!s:<46} {row.recall:>7.4f} "
            f"{'' if row.guaranteed_recall is None else format(row.guaranteed_recall, '.4f'):>9} "
            f"{row.median_seconds * 1e3:>10.1f} {row.p95_seconds * 1e3:>8.1f} {row.num_scored:>9.0f}"
            for row in self.rows
        ]
        verdict = f"chosen: {self.chosen}"
        if self.is_exact:
            verdict += f" (exact; no cheaper strategy certainly reaches recall {self.target_recall})"
        return "\n".join([head, *lines, verdict])


def tune(
    search: Callable[[QueryParts, Strategy], SearchResult],
    queries: QueryParts,
    *,
    k: int,
    num_items: int,
    max_n: int | None,
    target_recall: float,
    confidence: float,
    show_progress: bool | None,
) -> TuningReport:
    """Measure strategies on the first half of the queries, and confirm the cheapest on the second."""
    for name, value in (("target_recall", target_recall), ("confidence", confidence)):
        if not 0.0 < value < 1.0:
            raise InvalidInputError(
                f"{name} is {value}; give a number between 0 and 1, both excluded (for a recall of 1, search with an "
                "exact strategy: TwoPass or Adaptive)."
            )
    if len(queries) < 4:
        raise InvalidInputError(f"sample_queries holds {len(queries)} queries; give at least 4, 1,000 is better.")
    half = len(queries) // 2
    explored, held_out = queries[:half], queries[half:]
    true_kth = [search(part, BruteForce()).kth_score for part in (explored, held_out)]  # (B,) each
    strategies, rows = (*EXACT, *_candidates(k, num_items, max_n)), []
    with measuring(len(strategies), is_shown=show_progress) as count:
        for strategy in strategies:
            rows.append(_measure(search, explored, strategy, true_kth[0]))
            count(format_strategy(strategy))
    rows.sort(key=lambda row: row.median_seconds)
    cheapest_exact = next(row for row in rows if row.strategy in EXACT)
    chosen, num_tried = cheapest_exact.strategy, 0
    for place, row in enumerate(rows):
        if row is cheapest_exact or num_tried == NUM_TRIALS:
            break
        if row.recall < target_recall:
            continue
        num_tried += 1
        recalls = _recalls(search(held_out, row.strategy), true_kth[1])  # (B,)
        bound = lower_bound(recalls.tolist(), error=(1 - confidence) / NUM_TRIALS)
        rows[place] = TuningRow(row.strategy, row.recall, bound, row.median_seconds, row.p95_seconds, row.num_scored)
        if bound >= target_recall:
            chosen = row.strategy
            break
    return TuningReport(chosen, chosen in EXACT, target_recall, confidence, k, tuple(rows))


def lower_bound(values: list[float], error: float) -> float:
    """Return a lower confidence bound on the mean of a distribution, from values between 0 and 1 drawn from it.

    The bound is above the mean with a probability of at most `error`. It comes from bets against each possible mean m:
    if the mean is at most m, a gambler who bets a share of the capital on each next value being above m multiplies
    the capital by 1 / error with at most that probability (Ville; Waudby-Smith and Ramdas, 2024). The bound is the
    smallest mean that the bets do not refute. It holds for any distribution and any number of values, and is sharp if
    most values are 1.
    """
    means = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64)[1:]  # (M,)
    log_capital = torch.zeros_like(means)  # (M,)
    total, spread = 0.5, 0.25
    for count, value in enumerate(values, start=1):
        share = math.sqrt(2 * math.log(1 / error) / (len(values) * spread / count))
        log_capital += torch.log1p(torch.clamp(0.95 / means, max=share) * (value - means))
        total += value
        spread += (value - total / (count + 1)) ** 2
    is_refuted = log_capital >= math.log(1 / error)  # (M,) of small means first
    return float(means[int(is_refuted.int().cumprod(dim=0).sum()) - 1]) if bool(is_refuted[0]) else 0.0


def _candidates(k: int, num_items: int, max_n: int | None) -> list[Strategy]:
    """Return approximate strategies that score at most half of the items, and that the engine can serve."""
    largest = num_items // 2 if max_n is None else min(num_items // 2, max_n)
    sizes = [size for size in (k * 2**power for power in range(9)) if size <= largest]
    few = [size for size in (5, 20, 100) if size <= largest]
    found: list[Strategy] = [Average(size) for size in sizes]
    found += [Weighted(size) for size in sizes[1:4]]
    found += [PerComponent(n) for n in few]
    found += [Combined(n, size) for n in few for size in sizes[1:5:2]]
    return found


def _measure(
    search: Callable[[QueryParts, Strategy], SearchResult], queries: QueryParts, strategy: Strategy, true_kth: Tensor
) -> TuningRow:
    """Search in batches of 32; the first batch runs twice, so that a warm search is measured."""
    search(queries[:QUERIES_PER_BATCH], strategy)
    seconds, recalls, num_scored = [], [], []
    for first in range(0, len(queries), QUERIES_PER_BATCH):
        rows = slice(first, first + QUERIES_PER_BATCH)
        started = time.perf_counter()
        result = search(queries[rows], strategy)
        seconds.append(time.perf_counter() - started)
        recalls.append(_recalls(result, true_kth[rows]))
        num_scored.append(result.num_scored)
    return TuningRow(
        strategy=strategy,
        recall=1.0 if strategy in EXACT else float(torch.cat(recalls).mean()),
        guaranteed_recall=1.0 if strategy in EXACT else None,
        median_seconds=statistics.median(seconds),
        p95_seconds=sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1],
        num_scored=float(torch.cat(num_scored).double().mean()),
    )


def _recalls(result: SearchResult, true_kth: Tensor) -> Tensor:
    """Return the share of each query's answer that belongs to the true top K."""
    least = true_kth - TIE * true_kth.abs().clamp_min(1.0)  # (B,)
    return (result.scores >= least[:, None]).double().mean(dim=1)  # (B,)
