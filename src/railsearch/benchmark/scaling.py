"""The cost of a search by the size of its corpus: only the scan of the first stage grows."""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.benchmark.machine import Machine, describe_machine, watch_others
from railsearch.data.synthetic.shapes import DEFAULT_SHARPNESS, SIZES, ShapeName, make_shape
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice, check_count
from railsearch.foundation.progress import measuring
from railsearch.index import Average, Index, Strategy, format_strategy
from railsearch.kernels import Stage, now, stopwatch
from railsearch.similarity import Similarity

SMALLEST_CORPUS = 24_186
"""The paper's smallest corpus in Table 3; sizes double from there."""


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """Median times of one search of a batch in a corpus of this size."""

    num_items: int
    median_seconds: float
    scan_seconds: float
    """Time of the first stage, which scans every item."""
    rest_seconds: float
    """Time of everything else: scoring the candidates and selecting the k best."""


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """The rows of all sizes, smallest first, and the setting of the run."""

    machine: Machine
    kernel: str
    """The arithmetic under all searches, such as "native (avx2)" or "torch"."""
    strategy: str
    k: int
    batch_size: int
    repeats: int
    busy_elsewhere: float | None
    """Cores that other processes kept busy during the measurement; None if the system does not report it."""
    rows: tuple[ScalingRow, ...]

    @property
    def growth(self) -> tuple[float, float, float]:
        """Ratios of the largest corpus to the smallest: items, scan time and rest time."""
        first, last = self.rows[0], self.rows[-1]
        return (
            last.num_items / first.num_items,
            last.scan_seconds / first.scan_seconds,
            last.rest_seconds / first.rest_seconds,
        )

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON values."""
        return dataclasses.asdict(self)


def measure_scaling(
    similarity: Similarity,
    items: Tensor,
    queries: Tensor,
    *,
    sizes: Sequence[int],
    strategy: Strategy,
    k: int = 100,
    repeats: int = 10,
    show_progress: bool | None = None,
) -> ScalingReport:
    """Search the first items of each size with all queries as one batch; the sizes take turns."""
    indexes = [Index.build(similarity, items[:size]) for size in sizes]
    measured: list[list[tuple[float, float]]] = [[] for _ in sizes]
    with measuring((1 + repeats) * len(sizes), is_shown=show_progress) as step, watch_others() as busy_elsewhere:
        for repeat in range(1 + repeats):  # the first round warms up
            for index, seconds in zip(indexes, measured, strict=True):
                with stopwatch() as stages:
                    started = now()
                    index.search(queries, k, strategy)
                    total = now() - started
                if repeat:
                    seconds.append((total, stages[Stage.FIRST_STAGE]))
                step(f"{len(index)} items")
    return ScalingReport(
        machine=describe_machine(),
        kernel=str(indexes[0].describe()["kernel"]),
        strategy=format_strategy(strategy),
        k=k,
        batch_size=len(queries),
        repeats=repeats,
        busy_elsewhere=busy_elsewhere(),
        rows=tuple(
            ScalingRow(
                num_items=size,
                median_seconds=statistics.median(total for total, _ in seconds),
                scan_seconds=statistics.median(scan for _, scan in seconds),
                rest_seconds=statistics.median(total - scan for total, scan in seconds),
            )
            for size, seconds in zip(sizes, measured, strict=True)
        ),
    )


def scale_shape(
    name: ShapeName | str,
    *,
    num_items: int | None = None,
    batch_size: int = 32,
    sharpness: float = DEFAULT_SHARPNESS,
    seed: int = 0,
    k: int = 100,
    strategy: Strategy | None = None,
    repeats: int = 10,
    show_progress: bool | None = None,
) -> ScalingReport:
    """Measure a strategy, by default Average(500), on growing corpora of one of the paper's workloads."""
    name = as_choice(ShapeName, name, name="shape")
    largest = check_count(SIZES[name].num_items if num_items is None else num_items, name="num_items")
    check_count(repeats, name="repeats")
    sizes = [size for size in (SMALLEST_CORPUS * 2**power for power in range(32)) if size < largest]
    if not sizes:
        raise InvalidInputError(
            f"num_items is {largest} but corpora grow from {SMALLEST_CORPUS}; ask for more items, or for books."
        )
    strategy = Average(500) if strategy is None else strategy
    trial = make_shape(name, num_items=SMALLEST_CORPUS, num_queries=1, sharpness=sharpness, seed=seed)
    Index.build(trial.similarity, trial.item_embeddings).search(
        torch.empty_like(trial.query_components[:0]), k, strategy
    )
    shape = make_shape(name, num_items=largest, num_queries=batch_size, sharpness=sharpness, seed=seed)
    return measure_scaling(
        shape.similarity,
        shape.item_embeddings,
        shape.query_components,
        sizes=[*sizes, largest],
        strategy=strategy,
        k=k,
        repeats=repeats,
        show_progress=show_progress,
    )
