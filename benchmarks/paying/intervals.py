"""Figures of tables, with the library's 95 % intervals: a bootstrap over queries and seeds, paired for differences."""

from collections.abc import Sequence

import torch
from torch import Tensor

from railsearch.evaluation.intervals import bootstrap_difference, bootstrap_intervals
from railsearch.foundation.metrics import values_per_query

METRICS = ("HR@1", "HR@10", "MRR")


def values_of(ranks: Sequence[int], metric: str) -> Tensor:
    """Return the metric (Q,) of each query from the rank of its best-placed right item."""
    given = torch.tensor(ranks)  # (Q,)
    cutoff = metric.rpartition("@")[2]
    return values_per_query(given, [int(cutoff)] if cutoff.isdecimal() else [])[metric].double()


def figure(values: Tensor) -> str:
    """Return the mean of values (S, Q), of S seeds and Q queries, and half the width of its interval."""
    interval = bootstrap_intervals(values[:, None])[0]
    return f"{short(float(values.mean()))} ± {short((interval.high - interval.low) / 2)}"


def difference(first: Tensor, second: Tensor) -> str:
    """Return the mean of first - second, (S, Q) each, with its interval; in bold if the difference is clear."""
    found = bootstrap_difference(first, second)
    text = f"{'+' if found.mean >= 0 else '-'}{short(abs(found.mean))} ± {short(found.margin)}"
    return f"**{text}**" if found.is_clear else text


def short(value: float) -> str:
    """Return a share without its leading zero."""
    return f"{value:.4f}".removeprefix("0")
