"""Confidence intervals of metrics and of their differences, by a bootstrap over queries and runs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000
DRAWS_PER_BLOCK = 2**22
"""Queries that are drawn at once."""
FEWEST_DIFFERENT = 6
"""If fewer queries differ, no test at 5 % can tell two systems apart: with 5, a fair coin gives the same side for all
of them in 2 of 32 cases."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of 95 %."""

    low: float
    high: float

    @property
    def margin(self) -> float:
        """Half the width, as in "0.462 +- 0.044"."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean difference of a metric between two systems on the same queries, with its confidence interval of 95 %."""

    mean: float
    low: float
    high: float
    num_queries: int
    num_different: int
    """Number of queries on which the two systems differ."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero, and enough queries differ for it to mean something."""
        return (self.low > 0 or self.high < 0) and self.num_different >= FEWEST_DIFFERENT

    @property
    def margin(self) -> float:
        """Half the width of the interval, as in "0.021 +- 0.006"."""
        return (self.high - self.low) / 2


def bootstrap_intervals(values: Tensor, *, seed: int = 0) -> list[Interval]:
    """Return the confidence interval of the mean of each metric.

    Args:
        values: (M, Q) or (S, M, Q): M metrics of Q queries, from S training runs that differ in their seed. Queries
            and runs are resampled.
        seed: seed of the resampling.

    >>> bootstrap_intervals(torch.tensor([[0.0, 1.0] * 50]))[0]
    Interval(low=0.4, high=0.6)
    """
    means = _resampled_means(_as_runs(values), torch.Generator().manual_seed(seed))  # (R, M)
    low, high = _quantiles(means)  # (M,)
    return [Interval(*bounds) for bounds in zip(low.tolist(), high.tolist(), strict=True)]


def bootstrap_difference(first: Tensor, second: Tensor, *, seed: int = 0) -> Difference:
    """Return the mean of first - second, with the confidence interval of a paired bootstrap.

    Each resample draws the same queries for both, so that easy and hard queries cancel out. The training runs of each
    are resampled as well: a difference that depends on the seed has a wide interval.

    Args:
        first: (Q,) or (S, Q): one metric of each query, from S training runs.
        second: the same for the other system, with as many queries; the number of runs may differ.
        seed: seed of the resampling.

    >>> better, worse = torch.tensor([1.0, 0.5, 1.0, 0.2] * 10), torch.tensor([0.5, 0.5, 0.5, 0.1] * 10)
    >>> difference = bootstrap_difference(better, worse)
    >>> round(difference.mean, 3), difference.num_different, difference.is_clear
    (0.275, 30, True)
    """
    runs = [values[None] if values.ndim == 1 else values for values in (first, second)]  # (S, Q) each
    if runs[0].shape[1] != runs[1].shape[1]:
        raise InvalidInputError(
            f"the first system has {runs[0].shape[1]} queries but the second {runs[1].shape[1]}; measure both on the "
            "same queries."
        )
    generator = torch.Generator().manual_seed(seed)
    by_run = _over_queries(torch.cat(runs).double(), generator)  # (R, S + S')
    own, other = by_run[:, : len(runs[0])], by_run[:, len(runs[0]) :]  # (R, S), (R, S')
    low, high = _quantiles(_over_runs(own, generator) - _over_runs(other, generator)).tolist()
    by_query = runs[0].double().mean(dim=0) - runs[1].double().mean(dim=0)  # (Q,)
    return Difference(
        mean=float(by_query.mean()),
        low=low,
        high=high,
        num_queries=len(by_query),
        num_different=int((by_query.abs() > 1e-12).sum()),
    )


def _as_runs(values: Tensor) -> Tensor:
    return (values[None] if values.ndim == 2 else values).double()  # (S, M, Q)


def _resampled_means(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean (R, M) of each metric in every resample of the queries and the runs (S, M, Q)."""
    num_runs, num_metrics, num_queries = values.shape
    means = _over_queries(values.reshape(-1, num_queries), generator)  # (R, S * M)
    return _over_runs(means.view(NUM_RESAMPLES, num_runs, num_metrics), generator)  # (R, M)


def _over_queries(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean (R, n) of each row of values (n, Q) over every resample of the queries."""
    num_queries = values.shape[1]
    means = []
    for size in _block_sizes(num_queries):
        drawn = torch.randint(num_queries, (size, num_queries), generator=generator)  # (r, Q)
        drawn += num_queries * torch.arange(size)[:, None]
        counts = torch.bincount(drawn.flatten(), minlength=size * num_queries)  # (r * Q,)
        means.append(counts.view(size, num_queries).double() @ values.T / num_queries)  # (r, n)
    return torch.cat(means)


def _over_runs(means: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean (R, ...) over a resample of the runs, in the second dimension (R, S, ...)."""
    num_runs = means.shape[1]
    drawn = torch.randint(num_runs, (len(means), num_runs), generator=generator)  # (R, S)
    return means[torch.arange(len(means))[:, None], drawn].mean(dim=1)


def _block_sizes(num_queries: int) -> list[int]:
    largest = max(1, DRAWS_PER_BLOCK // num_queries)
    return [min(largest, NUM_RESAMPLES - first) for first in range(0, NUM_RESAMPLES, largest)]


def _quantiles(means: Tensor) -> Tensor:
    """Return the bounds (2, ...) between which the middle 95 % of resamples lie."""
    tail = (1 - CONFIDENCE) / 2
    return torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=means.dtype), dim=0)
