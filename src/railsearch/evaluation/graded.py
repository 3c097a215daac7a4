"""Measures of ranked lists that count every right item with its grade, as trec_eval and BEIR define them."""

import re
from collections.abc import Iterable

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError

DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR@10", "AP@100")
MEASURE = re.compile(r"(nDCG|R|RR|AP|P)@([1-9][0-9]{0,8})")


def measure_lists(
    rows: Tensor, right: Tensor, names: Iterable[str] | None = None, *, num_items: int
) -> dict[str, float]:
    """Return the mean of each measure over the queries that have a right item.

    Args:
        rows: (Q, K) rows of the best items, best first; -1 if a query has fewer.
        right: (M, 3) query row, row of a right item, and its grade, 1 or more.
        names: measures with cutoffs, of nDCG, R, RR, AP and P; a cutoff must not be above K, unless the lists hold all
            items. By default, those of `DEFAULT_MEASURES` whose cutoffs are not.
        num_items: N, the number of all items.

    >>> rows, right = torch.tensor([[3, 1, 2]]), torch.tensor([[0, 1, 2], [0, 0, 1]])
    >>> measure_lists(rows, right, ["RR@2", "R@2", "P@2", "AP@3"], num_items=4)
    {'RR@2': 0.5, 'R@2': 0.5, 'P@2': 0.5, 'AP@3': 0.25}
    """
    depth = num_items if rows.shape[1] >= num_items else int(rows.shape[1])
    is_whole = depth == num_items
    if names is None:
        names = [name for name in DEFAULT_MEASURES if is_whole or int(name.partition("@")[2]) <= depth]
    grades = grades_of(rows, right, num_items=num_items)  # (Q, K)
    queries = torch.unique(right[:, 0])  # (q,)
    found = {}
    for name in names:
        matched = MEASURE.fullmatch(name)
        if matched is None:
            raise InvalidInputError(f"the measure is {name!r:.80}; give one such as {', '.join(DEFAULT_MEASURES)}.")
        kind, k = matched[1], int(matched[2])
        if k > depth and not is_whole:
            raise InvalidInputError(
                f"{name} needs lists of {k} but they have {depth} items; evaluate with a depth of {k}."
            )
        values = _values(kind, grades[:, :k], right, k, num_queries=len(rows))  # (Q,)
        found[name] = float(values[queries].mean()) if len(queries) else 0.0
    return found


def grades_of(rows: Tensor, right: Tensor, *, num_items: int) -> Tensor:
    """Return the grade of each listed item (Q, K); 0 if it is not right for its query."""
    if not len(right):
        return torch.zeros(rows.shape, dtype=torch.float64)
    keys, order = (right[:, 0] * num_items + right[:, 1]).sort()  # (M,)
    asked = torch.arange(len(rows))[:, None] * num_items + rows  # (Q, K)
    places = torch.searchsorted(keys, asked).clamp_max(len(keys) - 1)  # (Q, K)
    is_right = (keys[places] == asked) & (rows >= 0)  # (Q, K)
    return torch.where(is_right, right[order, 2][places].double(), 0.0)


def _values(kind: str, grades: Tensor, right: Tensor, k: int, *, num_queries: int) -> Tensor:
    """Return a measure of each query (Q,) from the grades (Q, k) of its list."""
    ranks = torch.arange(1, grades.shape[1] + 1)  # (k,)
    is_right = (grades > 0).double()  # (Q, k)
    num_right = torch.bincount(right[:, 0], minlength=num_queries).double()  # (Q,)
    if kind == "P":
        return is_right.sum(dim=1) / k
    if kind == "R":
        return is_right.sum(dim=1) / num_right.clamp(min=1)
    if kind == "RR":
        return (is_right / ranks).amax(dim=1)
    if kind == "AP":
        precision = is_right.cumsum(dim=1) / ranks  # (Q, k)
        return (precision * is_right).sum(dim=1) / num_right.clamp(min=1)
    discounts = (1 + ranks.double()).log2().reciprocal()  # (k,)
    ideal = _ideal_gains(right, k, num_queries=num_queries)  # (Q,)
    return (grades * discounts).sum(dim=1) / ideal.clamp(min=torch.finfo(torch.float64).tiny)


def _ideal_gains(right: Tensor, k: int, *, num_queries: int) -> Tensor:
    """Return the discounted gain (Q,) of the k best right items of each query in their best order."""
    by_grade = right[right[:, 2].argsort(descending=True, stable=True)]  # (M, 3)
    ordered = by_grade[by_grade[:, 0].argsort(stable=True)]  # by query, best grade first
    counts = torch.bincount(ordered[:, 0], minlength=num_queries)  # (Q,)
    ranks = torch.arange(1, len(ordered) + 1) - (counts.cumsum(dim=0) - counts)[ordered[:, 0]]  # (M,)
    gains = ordered[:, 2] * (1 + ranks.double()).log2().reciprocal() * (ranks <= k)  # (M,)
    return torch.zeros(num_queries, dtype=torch.float64).index_add_(0, ordered[:, 0], gains)
