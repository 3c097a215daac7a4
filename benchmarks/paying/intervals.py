"""Figures with 95 % intervals from the rank of each query: a bootstrap over queries, paired for differences."""

from dataclasses import dataclass

import numpy as np
import torch

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
METRICS = ("HR@1", "HR@10", "MRR")
NUM_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over queries and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{short(self.mean)} ± {short(self.margin)}"

    def as_difference(self) -> str:
        """Return a signed difference with its interval, in bold if the interval does not include 0."""
        text = f"{'+' if self.mean >= 0 else '-'}{short(abs(self.mean))} ± {short(self.margin)}"
        return f"**{text}**" if self.low > 0 or self.high < 0 else text


def values_of(ranks: torch.Tensor | list[int], metric: str) -> Values:
    """Return the metric of each query from the rank of its right item."""
    given = np.asarray(ranks, dtype=np.float64)  # (Q,)
    if metric == "MRR":
        return 1 / given
    return (given <= int(metric.removeprefix("HR@"))).astype(np.float64)


def bootstrap(values: Values, *, seed: int = 0) -> Figure:
    """Return the mean of the values and its interval: the queries are drawn again NUM_DRAWS times.

    For a difference of two models, give the differences of each query.
    """
    generator = np.random.default_rng(seed)
    size = len(values)
    means = np.array([values[generator.integers(size, size=size)].mean() for _ in range(NUM_DRAWS)])
    low, high = np.quantile(means, [0.025, 0.975])
    return Figure(float(values.mean()), float(low), float(high))


def short(value: float, digits: int = 4) -> str:
    """Return a share without its leading zero."""
    return f"{value:.{digits}f}".removeprefix("0") if 0 <= value < 1 else f"{value:.{digits}f}"
