"""The report of a benchmark, to print, store and plot."""

import dataclasses
import math
from dataclasses import dataclass

from railsearch.benchmark.machine import Machine


@dataclass(frozen=True, slots=True)
class Latency:
    """The time of one search with a batch of this size."""

    batch_size: int
    median_seconds: float
    p95_seconds: float
    fastest_seconds: float
    """Least affected by noise, for machines that are never quiet."""
    speed_up: float
    """Median of brute force in the same run, divided by this median."""


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """The figures of one way to search."""

    name: str
    hit_rates: dict[int, float]
    """By depth K: share of brute force's best K items among this one's best K; ties are not misses. If the relevant
    item is equally likely at each of these ranks, it is also HR@K relative to that of brute force."""
    latencies: tuple[Latency, ...]
    """One for each batch size, in the order of the argument."""
    num_scored: float
    """Mean number of items scored for each query."""
    mean_gap: float
    """Mean certified bound on how far the true k-th score can exceed the one found."""
    share_exact: float
    """Share of queries whose answer is certified exact."""
    stage_seconds: dict[str, float]
    """Medians of first_stage, scoring, selection and other, for the first batch size."""
    peak_bytes: int | None
    """Peak memory of a search beyond the memory in use before it; None if the system does not report it."""


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """The rows of all ways to search, brute force first, and the setting of the run."""

    machine: Machine
    kernel: str
    """The arithmetic under all searches, such as "native (avx2)" or "torch"."""
    dtype: str
    num_items: int
    num_query_components: int
    num_item_components: int
    component_dim: int
    k: int
    num_queries: int
    repeats: int
    busy_elsewhere: float | None
    """Cores that other processes kept busy during the measurement; None if the system does not report it."""
    rows: tuple[BenchmarkRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON values; infinite numbers become None."""
        plain: dict[str, object] = _finite(dataclasses.asdict(self))  # type: ignore[assignment]  # a dict stays a dict
        return plain

    def row(self, name: str) -> BenchmarkRow:
        """Return the row of this name."""
        return next(row for row in self.rows if row.name == name)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(kept) for key, kept in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(kept) for kept in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
