"""The result of an evaluation: metrics with confidence intervals, the protocol, and the rank of every query."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from railsearch.evaluation.intervals import Difference, Interval, bootstrap_difference, bootstrap_intervals
from railsearch.evaluation.runs import Run
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.metrics import values_per_query


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics, their confidence intervals, and the protocol of their measurement.

    >>> Evaluation.of_ranks([1, 2, 40], cutoffs=[1, 10], protocol="3 queries").metrics["HR@10"]  # doctest: +ELLIPSIS
    0.666...
    """

    metrics: dict[str, float]
    protocol: str
    num_queries: int
    """Number of users or questions."""
    ranks: Tensor = field(repr=False, compare=False)  # (Q,)
    """The rank of each query's best-placed right item; the first rank is 1."""
    query_rows: Tensor = field(repr=False, compare=False)  # (Q,)
    """The row of each query among the query embeddings, users or questions, ascending."""
    run: Run | None = field(default=None, repr=False, compare=False)
    """The ranked lists, if the evaluation was asked for some depth; they can be written as TREC files."""

    @classmethod
    def of_ranks(
        cls,
        ranks: Tensor | Sequence[int],
        *,
        cutoffs: Sequence[int],
        protocol: str,
        query_rows: Tensor | None = None,
        run: Run | None = None,
    ) -> Self:
        """Summarize ranks: HR and NDCG at every cutoff, and MRR.

        Args:
            ranks: (Q,) rank of each query's best-placed right item.
            cutoffs: the k of HR@k and NDCG@k.
            protocol: a sentence that describes how the ranks were measured.
            query_rows: (Q,) rows of the queries, ascending; by default 0 to Q - 1.
            run: the ranked lists, if they are kept.
        """
        known = torch.as_tensor(ranks).cpu()
        values = values_per_query(known, cutoffs)
        return cls(
            metrics={name: float(of_queries.mean()) for name, of_queries in values.items()},
            protocol=protocol,
            num_queries=len(known),
            ranks=known,
            query_rows=torch.arange(len(known)) if query_rows is None else query_rows.cpu(),
            run=run,
        )

    @property
    def intervals(self) -> dict[str, Interval]:
        """The confidence interval of each metric: 95 %, by a bootstrap over queries; computed when it is read."""
        values = torch.stack([self.values(name) for name in self.metrics])  # (M, Q)
        return dict(zip(self.metrics, bootstrap_intervals(values), strict=True))

    def values(self, metric: str) -> Tensor:
        """Return the value (Q,) of a metric for each query; their mean is the metric."""
        if metric not in self.metrics:
            raise InvalidInputError(f"metric is {metric!r}; choose from: {', '.join(self.metrics)}.")
        cutoff = metric.rpartition("@")[2]
        return values_per_query(self.ranks, [int(cutoff)] if cutoff.isdecimal() else [])[metric]

    def to_dict(self) -> dict[str, object]:
        """Return everything except ranks and rows as JSON values."""
        return {
            "metrics": dict(self.metrics),
            "intervals": {name: dataclasses.astuple(interval) for name, interval in self.intervals.items()},
            "protocol": self.protocol,
            "num_queries": self.num_queries,
        }

    def __str__(self) -> str:
        intervals = self.intervals
        figures = [f"{name} {value:.4f} +- {intervals[name].margin:.4f}" for name, value in self.metrics.items()]
        return "\n".join(["  ".join(figures), self.protocol])


def paired_difference(
    first: Evaluation | Sequence[Evaluation], second: Evaluation | Sequence[Evaluation], *, metric: str = "MRR"
) -> Difference:
    """Return how far the first system is ahead of the second on the same queries, with a confidence interval.

    Args:
        first: an evaluation, or the evaluations of several training runs of one system.
        second: the same for the other system.
        metric: the metric to compare.

    >>> better = Evaluation.of_ranks([1, 1, 2, 1] * 10, cutoffs=[1], protocol="")
    >>> worse = Evaluation.of_ranks([2, 1, 4, 2] * 10, cutoffs=[1], protocol="")
    >>> difference = paired_difference(better, worse)
    >>> round(difference.mean, 4), difference.is_clear
    (0.3125, True)
    """
    runs = [[given] if isinstance(given, Evaluation) else list(given) for given in (first, second)]
    rows = [run.query_rows for own in runs for run in own]
    if not (runs[0] and runs[1]):
        raise InvalidInputError("one of the two systems has no evaluation; give at least one for each.")
    if any(not torch.equal(own, rows[0]) for own in rows):
        raise InvalidInputError(
            f"the evaluations are of different queries ({', '.join(str(len(own)) for own in rows)}); measure both "
            "systems on the same ones."
        )
    return bootstrap_difference(*(torch.stack([run.values(metric) for run in own]) for own in runs))
