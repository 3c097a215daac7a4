"""Metrics of recommendations beyond accuracy: coverage, concentration, novelty, popularity share and diversity.

Each function takes the recommended rows (B, K) of B users; a negative row is a place that holds no item.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_integers, check_count, check_positive

LISTS_PER_BLOCK = 4096
"""Lists whose embeddings are gathered at once."""


def coverage(recommended: ArrayLike, num_items: int) -> float:
    """Return the share of the catalogue that is recommended to anybody.

    coverage = |union of all lists| / num_items

    >>> coverage([[0, 1], [1, 2]], num_items=10)
    0.3
    """
    return len(torch.unique(_rows(recommended, num_items))) / num_items


def gini(recommended: ArrayLike, num_items: int) -> float:
    """Return the Gini index of how often each item is recommended: 0 if all equally often, near 1 if one gets all.

    gini = sum over i of (2 i - N - 1) c_i / (N sum of c), where c_1 <= ... <= c_N are the counts of all N items

    >>> gini([[0, 1], [2, 3]], num_items=4), gini([[0], [0]], num_items=4)
    (0.0, 0.75)
    """
    counts = torch.bincount(_rows(recommended, num_items), minlength=num_items).sort().values.double()  # (N,)
    places = torch.arange(1, num_items + 1)  # (N,)
    return float(((2 * places - num_items - 1) * counts).sum() / (num_items * counts.sum()))


def novelty(recommended: ArrayLike, item_counts: ArrayLike) -> float:
    """Return the mean self-information of the recommended items, in bits; a rarer item has more.

    novelty = mean of -log2 p(i), where p(i) = (events of i + 1) / (all events + number of items)

    The addition of one event to every item keeps the value of an item without training events finite.

    Args:
        recommended: (B, K) rows of items.
        item_counts: (N,) training events of each item.

    >>> novelty([[0, 1]], item_counts=[3, 0])  # p = 4/5 and 1/5  # doctest: +ELLIPSIS
    1.321...
    """
    counts = _counts(item_counts)  # (N,)
    information = -((counts + 1) / (counts.sum() + len(counts))).log2()  # (N,)
    return float(information[_rows(recommended, len(counts))].mean())


def popularity_share(recommended: ArrayLike, item_counts: ArrayLike, *, popular: float = 0.1) -> float:
    """Return the share of recommendations that are among the most popular items.

    popularity_share = |recommendations in the head| / |recommendations|; the head is the `popular` share of all items
    with the most training events, at least one item; of equal counts the smaller row.

    Args:
        recommended: (B, K) rows of items.
        item_counts: (N,) training events of each item.
        popular: the share of all items that counts as popular, above 0 and at most 1.

    >>> popularity_share([[0, 1], [0, 2]], item_counts=[9, 1, 5, 2], popular=0.5)
    0.75
    """
    counts = _counts(item_counts)  # (N,)
    places = popularity_places(counts)  # (N,)
    num_popular = max(1, math.floor(check_popular(popular) * len(counts)))
    return float((places[_rows(recommended, len(counts))] < num_popular).double().mean())


def diversity(recommended: ArrayLike, item_embeddings: Tensor) -> float | None:
    """Return how different the items of one list are: 1 minus their mean cosine, averaged over the lists.

    diversity = mean over lists of (1 - mean of cos(i, j) over the pairs i != j of the list)

    Lists with fewer than two items do not count; if there is no other list, the result is None.

    Args:
        recommended: (B, K) rows of items.
        item_embeddings: (N, D).

    >>> diversity([[0, 1], [0, 2]], torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
    0.5
    """
    lists = as_integers(recommended, name="recommended")  # (B, K)
    _rows(lists, len(item_embeddings))
    total, num_lists = 0.0, 0
    for block in torch.split(lists, LISTS_PER_BLOCK):
        is_item = block >= 0  # (b, K)
        found = F.embedding(block.clamp(min=0).to(item_embeddings.device), item_embeddings.detach())  # (b, K, D)
        unit = F.normalize(found.double(), dim=-1).cpu() * is_item[..., None]  # (b, K, D)
        sizes = is_item.sum(dim=1).double()  # (b,)
        own = unit.square().sum(dim=(1, 2))  # (b,) the items with themselves
        cosines = unit.sum(dim=1).square().sum(dim=1) - own  # (b,) all ordered pairs
        counts = sizes > 1  # (b,)
        total += float((1 - cosines[counts] / (sizes * (sizes - 1))[counts]).sum())
        num_lists += int(counts.sum())
    return total / num_lists if num_lists else None


def popularity_places(item_counts: Tensor) -> Tensor:
    """Return the place (N,) of each item by popularity: 0 has the most events; of equal counts the smaller row.

    >>> popularity_places(torch.tensor([1, 7, 7])).tolist()
    [2, 0, 1]
    """
    order = item_counts.argsort(descending=True, stable=True)  # (N,)
    return torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))


def check_popular(popular: float) -> float:
    """Check the share of items that counts as popular."""
    if check_positive(popular, name="popular") > 1:
        raise InvalidInputError(f"popular is {popular}; give a share of the items above 0 and at most 1.")
    return float(popular)


def _rows(recommended: ArrayLike, num_items: int) -> Tensor:
    """Return all recommended rows (R,), without places that hold no item."""
    check_count(num_items, name="num_items")
    rows = as_integers(recommended, name="recommended").flatten()
    rows = rows[rows >= 0]
    if not len(rows):
        raise InvalidInputError("recommended holds no item; give at least one.")
    if int(rows.max()) >= num_items:
        raise InvalidInputError(
            f"recommended holds row {int(rows.max())} but there are {num_items} items; give rows below {num_items}."
        )
    return rows


def _counts(item_counts: ArrayLike) -> Tensor:
    counts = as_integers(item_counts, name="item_counts")
    if counts.ndim != 1 or not len(counts) or int(counts.min()) < 0:
        raise InvalidInputError(
            f"item_counts has shape {tuple(counts.shape)}; give one number of events >= 0 for each item."
        )
    return counts
