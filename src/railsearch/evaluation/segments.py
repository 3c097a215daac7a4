"""Segments of test users: metrics by length of the history, by popularity of the test item, and of new users."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.evaluation.beyond import popularity_places
from railsearch.evaluation.intervals import Interval, bootstrap_intervals
from railsearch.foundation.metrics import values_per_query

LENGTHS = (1, 5, 10, 20, 50, 100, 200)
"""The shortest history of each segment."""
POPULAR_SHARES = (0.01, 0.1, 0.5, 1.0)
"""The share of all items, the most popular first, at which each segment ends."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Metrics of some of the test users, with confidence intervals of 95 %."""

    by: str
    """The property that divides the users, such as "history length"."""
    name: str
    num_queries: int
    metrics: dict[str, float]
    intervals: dict[str, Interval]

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON values."""
        values = {name: dataclasses.astuple(interval) for name, interval in self.intervals.items()}
        return {
            "by": self.by,
            "segment": self.name,
            "num_queries": self.num_queries,
            "metrics": dict(self.metrics),
            "intervals": {name: list(bounds) for name, bounds in values.items()},
        }

    def __str__(self) -> str:
        figures = [f"{name} {value:.4f} +- {self.intervals[name].margin:.4f}" for name, value in self.metrics.items()]
        return f"{self.by} {self.name} ({self.num_queries:,} users): {'  '.join(figures)}"


def make_segments(by: str, names: Sequence[str], places: Tensor, ranks: Tensor, *, k: int) -> Iterator[Segment]:
    """Yield HR@k, MRR and NDCG@k of every segment that has a query.

    Args:
        by: the property that divides the queries.
        names: the name of each segment.
        places: (Q,) the segment of each query, as a place in `names`.
        ranks: (Q,) rank of each query's target.
        k: the cutoff.

    >>> found = make_segments("user", ["known", "new"], torch.tensor([0, 1, 0]), torch.tensor([1, 20, 3]), k=10)
    >>> [(segment.name, segment.num_queries, segment.metrics["HR@10"]) for segment in found]
    [('known', 2, 1.0), ('new', 1, 0.0)]
    """
    for place, name in enumerate(names):
        own = ranks[places == place]  # (q,)
        if not len(own):
            continue
        values = values_per_query(own, [k])
        intervals = bootstrap_intervals(torch.stack(list(values.values())))
        yield Segment(
            by=by,
            name=name,
            num_queries=len(own),
            metrics={metric: float(each.mean()) for metric, each in values.items()},
            intervals=dict(zip(values, intervals, strict=True)),
        )


def by_length(lengths: Tensor) -> tuple[list[str], Tensor]:
    """Return the names of the segments by length of the history, and the segment (Q,) of each length.

    >>> names, places = by_length(torch.tensor([3, 5, 700]))
    >>> [names[place] for place in places]
    ['1-4', '5-9', '200+']
    """
    names = [f"{low}-{high - 1}" for low, high in itertools.pairwise(LENGTHS)] + [f"{LENGTHS[-1]}+"]
    return names, torch.bucketize(lengths, torch.tensor(LENGTHS), right=True) - 1


def by_popularity(targets: Tensor, item_counts: Tensor) -> tuple[list[str], Tensor]:
    """Return the names of the segments by popularity of the item, and the segment (Q,) of each target.

    Popularity is the number of training events. Items without training events are a segment of their own.

    >>> names, places = by_popularity(torch.tensor([0, 1, 3]), torch.tensor([0, 7, 9, 4]))
    >>> [names[place] for place in places]
    ['not in training', 'top 10-50 %', 'top 50-100 %']
    """
    num_items = len(item_counts)
    ends = torch.tensor([math.ceil(share * num_items) for share in POPULAR_SHARES])  # (S,)
    names = [
        f"top {100 * low:g}-{100 * high:g} %" if low else f"top {100 * high:g} %"
        for low, high in itertools.pairwise((0.0, *POPULAR_SHARES))
    ]
    places = torch.bucketize(popularity_places(item_counts)[targets], ends, right=True)  # (Q,)
    return [*names, "not in training"], torch.where(item_counts[targets] == 0, len(names), places)


def by_acquaintance(is_known: Tensor) -> tuple[list[str], Tensor]:
    """Return the names of the segments of known and new users, and the segment (Q,) of each user.

    >>> by_acquaintance(torch.tensor([True, False]))[1].tolist()
    [0, 1]
    """
    return ["known", "new"], (~is_known).long()
