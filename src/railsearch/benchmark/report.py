"""What a benchmark measured, in a form that can be printed, kept and drawn."""

import dataclasses
import math
from dataclasses import dataclass

from railsearch.benchmark.machine import Machine


@dataclass(frozen=True, slots=True)
class Latency:
    """How long one search of so many queries takes."""

    batch_size: int
    median_seconds: float
    p95_seconds: float
    fastest_seconds: float
    """What noise added the least to, for machines that are never quiet."""
    speed_up: float
    """How many times as fast as brute force in the same run, by medians."""


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """What was measured of one way to search."""

    name: str
    hit_rates: dict[int, float]
    """By depth K: the share of brute force's best K that is among this one's best K; ties are no misses. It is also
    the share of HR@K that is kept, if the item that a user wants stands at any of those places alike."""
    latencies: tuple[Latency, ...]
    """One for each batch size, in the order they were asked for."""
    num_scored: float
    """Items scored, on average over queries."""
    mean_gap: float
    """How much the true k-th score can exceed the one that was found, by the certificate, on average."""
    share_exact: float
    """Share of queries whose answer is certified exact."""
    stage_seconds: dict[str, float]
    """Medians of first_stage, scoring, selection and other, for the first batch size."""
    peak_bytes: int | None
    """Memory that a search takes at most beyond what is there before it; None where the system does not tell."""


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """All that was measured, brute force first, and where."""

    machine: Machine
    dtype: str
    num_items: int
    num_query_components: int
    num_item_components: int
    component_dim: int
    k: int
    num_queries: int
    repeats: int
    busy_elsewhere: float | None
    """Cores that other work kept busy while times were taken; None where the system does not tell."""
    rows: tuple[BenchmarkRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Give everything as JSON can keep it; what is infinite becomes None."""
        plain: dict[str, object] = _finite(dataclasses.asdict(self))  # type: ignore[assignment]  # a dict stays one
        return plain

    def row(self, name: str) -> BenchmarkRow:
        """Find a row by its name."""
        return next(row for row in self.rows if row.name == name)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(kept) for key, kept in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(kept) for kept in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
