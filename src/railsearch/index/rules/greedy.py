"""The greedy choice of k items from a ranking: caps of categories, and maximal marginal relevance.

Maximal marginal relevance (Carbonell and Goldstein, 1998) chooses one item after the other. Each is the one with the
greatest (1 - diversity) * relevance - diversity * (its greatest similarity to an item that was chosen before).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def choose_capped(categories: Sequence[Sequence[int]], limits: Sequence[int], k: int) -> list[int]:
    """Walk down a ranking and take the first k places that no full category forbids.

    Args:
        categories: the categories of the item at each place.
        limits: the most items of each category.
        k: the number of places to take; fewer if there are no more.

    >>> choose_capped([[0], [0], [0, 1], [1], []], [1, 1], k=3)
    [0, 3, 4]
    """
    left = dict(enumerate(limits))
    chosen: list[int] = []
    for place, own in enumerate(categories):
        if len(chosen) == k:
            break
        if all(left[category] for category in own):
            chosen.append(place)
            for category in own:
                left[category] -= 1
    return chosen


def choose_diverse(
    scores: Floats,
    vectors: Floats,
    k: int,
    *,
    diversity: float,
    categories: Sequence[Sequence[int]] | None = None,
    limits: Sequence[int] = (),
) -> list[int]:
    """Choose k places of a ranking by maximal marginal relevance, and within caps if there are categories.

    The relevance of an item is its score, scaled so that the scores of all places reach from 0 to 1. Of equal values
    the earlier place is better.

    Args:
        scores: (n,) scores, best first.
        vectors: (n, D) vectors whose dot product is the similarity of two items.
        k: the number of places to choose; fewer if there are no more.
        diversity: the weight of the similarity, from 0 to 1.
        categories: the categories of the item at each place.
        limits: the most items of each category.
    """
    places_of: dict[int, list[int]] = {}
    for place, own in enumerate(categories or ()):
        for category in own:
            places_of.setdefault(category, []).append(place)
    left = dict(enumerate(limits))
    width = scores[0] - scores[-1] if len(scores) else 0.0
    relevance = (scores - scores[-1]) / width if width > 0 else np.zeros_like(scores)  # (n,)
    is_open = np.ones(len(scores), dtype=np.bool_)  # (n,)
    nearest = np.zeros_like(scores)  # (n,) nothing is chosen yet
    chosen: list[int] = []
    while len(chosen) < k and is_open.any():
        value = np.where(is_open, (1 - diversity) * relevance - diversity * nearest, -np.inf)  # (n,)
        best = int(value.argmax())
        likeness = vectors @ vectors[best]  # (n,)
        nearest = np.maximum(nearest, likeness) if chosen else likeness
        chosen.append(best)
        is_open[best] = False
        for category in categories[best] if categories is not None else ():
            left[category] -= 1
            if not left[category]:
                is_open[places_of[category]] = False
    return chosen
