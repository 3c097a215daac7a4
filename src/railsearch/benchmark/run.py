"""The benchmark of search strategies: quality and cost of each, measured in one run (the paper's Table 3)."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from railsearch.benchmark.hit_rates import relative_hit_rates
from railsearch.benchmark.machine import describe_machine, measure_peak, watch_others
from railsearch.benchmark.naive import NaiveBruteForce
from railsearch.benchmark.report import BenchmarkReport, BenchmarkRow, Latency
from railsearch.data.synthetic.shapes import DEFAULT_SHARPNESS, SIZES, ShapeName, make_shape
from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import ArrayLike, as_choice, as_embeddings, check_count
from railsearch.foundation.progress import measuring
from railsearch.foundation.results import SearchResult
from railsearch.index import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    Engine,
    Index,
    PerComponent,
    Strategy,
    TwoPass,
    format_strategy,
)
from railsearch.kernels import Stage, now, stopwatch
from railsearch.similarity import QueryParts

NAIVE = "naive BruteForce"
DEFAULT_STRATEGIES: tuple[Strategy, ...] = (
    TwoPass(),
    Adaptive(),
    Adaptive(max_gap=1.0),
    PerComponent(5),
    PerComponent(100),
    Average(200),
    Average(500),
    Average(2000),
    Combined(5, 200),
    Combined(100, 500),
)


@dataclass(slots=True)
class _Contender:
    """A way to search, and the times measured so far."""

    name: str
    search: Callable[[Tensor | QueryParts], SearchResult]
    seconds: dict[int, list[float]] = field(default_factory=dict)
    stages: list[dict[str, float]] = field(default_factory=list)


def run_benchmark(
    index: Index,
    queries: ArrayLike | QueryParts,
    *,
    k: int = 100,
    strategies: Sequence[Strategy] | None = None,
    batch_sizes: Sequence[int] = (32, 1),
    repeats: int = 10,
    naive: NaiveBruteForce | None = None,
    show_progress: bool | None = None,
) -> BenchmarkReport:
    """Measure strategies on an index, together with brute force.

    A first round answers all queries; it warms up and measures quality and memory. Then the strategies take turns, each
    with one batch of every size, so that noise affects all of them equally. Compare times only within one run.

    Args:
        index: the index to search.
        queries: embeddings (B, D), ready components if the similarity takes those, or parts; at least as many as
            the largest batch.
        k: number of items that each search returns.
        strategies: strategies to measure besides brute force, which always runs first; by default `DEFAULT_STRATEGIES`.
        batch_sizes: numbers of queries in a search; times by stage are those of the first size.
        repeats: measurements of each strategy and size; every repeat takes the next batch of the queries.
        naive: also measure brute force on raw item embeddings, as research code runs it.
        show_progress: True draws a progress bar, False shows nothing; by default, a bar on a terminal, and an
            occasional line elsewhere.

    >>> from railsearch.data import make_shape
    >>> shape = make_shape("ml-20m", num_items=300, num_queries=4)
    >>> index = Index.build(shape.similarity, shape.item_embeddings)
    >>> report = run_benchmark(index, shape.query_components, k=5, strategies=[TwoPass()], batch_sizes=[4], repeats=1)
    >>> [(row.name, row.hit_rates[5], row.share_exact) for row in report.rows]
    [('BruteForce', 1.0, 1.0), ('TwoPass', 1.0, 1.0)]
    """
    checked = (
        queries
        if isinstance(queries, QueryParts)
        else as_embeddings(queries, name="queries", shape=index.similarity.query_shape)
    )
    _check_run(k, len(index), len(checked), batch_sizes, repeats)
    chosen = _with_brute_force(DEFAULT_STRATEGIES if strategies is None else strategies)
    _check_strategies(index, checked, k, chosen)
    contenders = [
        _Contender(format_strategy(strategy), partial(index.search, k=k, strategy=strategy)) for strategy in chosen
    ]
    if naive is not None:
        if len(naive.items) != len(index):
            raise InvalidInputError(
                f"naive has {len(naive.items)} items but the index holds {len(index)}; give both the same items."
            )
        contenders.insert(1, _Contender(NAIVE, partial(naive.search, k=k)))
    with measuring(len(contenders) * (1 + repeats), is_shown=show_progress) as step:
        results, peaks = [], []
        for contender in contenders:
            result, peak = measure_peak(partial(contender.search, checked))
            results.append(result)
            peaks.append(peak)
            for size in batch_sizes:
                contender.search(checked[:size])
            step(contender.name)
        with watch_others() as busy_elsewhere:
            for repeat in range(repeats):
                for contender in contenders:
                    for size in batch_sizes:
                        _measure(contender, _batch(checked, size, repeat), size, has_stages=size == batch_sizes[0])
                    step(contender.name)
    return BenchmarkReport(
        machine=describe_machine(),
        kernel=str(index.describe()["kernel"]),
        dtype=_dtype(index),
        num_items=len(index),
        num_query_components=index.similarity.num_query_components,
        num_item_components=index.similarity.num_item_components,
        component_dim=index.similarity.component_dim,
        k=k,
        num_queries=len(checked),
        repeats=repeats,
        busy_elsewhere=busy_elsewhere(),
        rows=tuple(
            _row(contender, contenders[0], result, results[0], peak)
            for contender, result, peak in zip(contenders, results, peaks, strict=True)
        ),
    )


def benchmark_shape(
    name: ShapeName | str,
    *,
    num_items: int | None = None,
    num_queries: int = 64,
    sharpness: float = DEFAULT_SHARPNESS,
    seed: int = 0,
    k: int = 100,
    strategies: Sequence[Strategy] | None = None,
    engine: Engine | None = None,
    batch_sizes: Sequence[int] = (32, 1),
    repeats: int = 10,
    has_naive: bool = True,
    show_progress: bool | None = None,
) -> BenchmarkReport:
    """Build a synthetic corpus of one of the paper's workloads, index it, and measure strategies on it.

    Invalid options are refused before the corpus is built. The options are those of `make_shape` and `run_benchmark`.
    """
    name = as_choice(ShapeName, name, name="shape")
    _check_run(k, SIZES[name].num_items if num_items is None else num_items, num_queries, batch_sizes, repeats)
    trial = make_shape(name, num_items=k, num_queries=1, sharpness=sharpness, seed=seed)
    trial_index = Index.build(trial.similarity, trial.item_embeddings, engine=engine)
    _check_strategies(trial_index, trial.query_components, k, DEFAULT_STRATEGIES if strategies is None else strategies)
    shape = make_shape(name, num_items=num_items, num_queries=num_queries, sharpness=sharpness, seed=seed)
    return run_benchmark(
        Index.build(shape.similarity, shape.item_embeddings, engine=engine),
        shape.query_components,
        k=k,
        strategies=strategies,
        batch_sizes=batch_sizes,
        repeats=repeats,
        naive=NaiveBruteForce(shape.similarity, shape.item_embeddings) if has_naive else None,
        show_progress=show_progress,
    )


def _check_run(k: int, num_items: int, num_queries: int, batch_sizes: Sequence[int], repeats: int) -> None:
    check_count(k, name="k")
    check_count(num_items, name="num_items")
    check_count(repeats, name="repeats")
    if k > num_items:
        raise NotEnoughItemsError(f"k is {k} but the index holds {num_items} items; ask for k <= {num_items}.")
    if not batch_sizes:
        raise InvalidInputError("batch_sizes is empty; give at least one, such as 32.")
    largest = max(check_count(size, name="batch_sizes") for size in batch_sizes)
    if num_queries < largest:
        raise InvalidInputError(
            f"there are {num_queries} queries but a batch of {largest} needs more; give {largest} or more."
        )


def _check_strategies(index: Index, queries: Tensor | QueryParts, k: int, strategies: Sequence[Strategy]) -> None:
    """Search with an empty batch of queries, which raises the error of a strategy that cannot work with this k."""
    for strategy in strategies:
        index.search(queries[:0], k, strategy)


def _with_brute_force(strategies: Sequence[Strategy]) -> list[Strategy]:
    """Return the strategies without duplicates, brute force first."""
    return list(dict.fromkeys([BruteForce(), *strategies]))


def _batch(queries: Tensor | QueryParts, size: int, turn: int) -> Tensor | QueryParts:
    """Return the batch of this turn; after the last complete batch, start again with the first."""
    first = size * (turn % (len(queries) // size))
    return queries[first : first + size]


def _measure(contender: _Contender, batch: Tensor | QueryParts, size: int, *, has_stages: bool) -> None:
    """Measure one search, and its stages if asked to."""
    with stopwatch() as stages:
        started = now()
        contender.search(batch)
        seconds = now() - started
    contender.seconds.setdefault(size, []).append(seconds)
    if has_stages:
        by_name = {stage.value: spent for stage, spent in stages.items()}
        contender.stages.append({**by_name, "other": seconds - sum(stages.values())})


def _row(
    contender: _Contender, brute_force: _Contender, result: SearchResult, truth: SearchResult, peak: int | None
) -> BenchmarkRow:
    latencies = []
    for size, seconds in contender.seconds.items():
        median = statistics.median(seconds)
        p95 = sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]
        latencies.append(
            Latency(size, median, p95, min(seconds), statistics.median(brute_force.seconds[size]) / median)
        )
    return BenchmarkRow(
        name=contender.name,
        hit_rates=relative_hit_rates(result.scores, truth.scores),
        latencies=tuple(latencies),
        num_scored=float(result.num_scored.double().mean()),
        mean_gap=float(result.gap.double().mean()),
        share_exact=float(result.is_exact.double().mean()),
        stage_seconds={
            name: statistics.median(stages[name] for stages in contender.stages) for name in (*Stage, "other")
        },
        peak_bytes=peak,
    )


def _dtype(index: Index) -> str:
    weights = next(iter(index.similarity.parameters()), torch.empty(0))
    return str(weights.dtype).removeprefix("torch.")
