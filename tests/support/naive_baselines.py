"""Baselines by plain loops over users and items, in dense fp64 and exact fractions."""

import math
from fractions import Fraction

from railsearch.data import HeldOut, Interactions, Split
from tests.support.naive_ranking import events_of


def train_histories(split: Split) -> list[list[int]]:
    """Return the training items of each user."""
    offsets = split.interactions.offsets.tolist()
    return [
        events_of(split.interactions, user)[0][: int(split.train_ends[user]) - offsets[user]]
        for user in range(split.interactions.num_users)
    ]


def naive_neighbors(split: Split, num_neighbors: int, shrinkage: float) -> list[dict[int, float]]:
    """Return the nearest items of each item with their similarities; without shrinkage, ties are exact."""
    fans: list[set[int]] = [set() for _ in range(split.interactions.num_items)]
    for user, items in enumerate(train_histories(split)):
        for item in items:
            fans[item].add(user)
    nearest = []
    for item, own in enumerate(fans):
        found = []
        for other, its in enumerate(fans):
            shared = len(own & its)
            if other != item and shared:
                size = len(own) * len(its)
                similarity = shared / (math.sqrt(size) + shrinkage)
                order = Fraction(shared**2, size) if not shrinkage else round(similarity, 9)
                found.append((-order, other, similarity))
        nearest.append({other: similarity for _, other, similarity in sorted(found)[:num_neighbors]})
    return nearest


def naive_knn_scores(neighbors: list[dict[int, float]], history: list[int]) -> list[float]:
    """Return the score of every item for one history."""
    return [math.fsum(neighbors[item].get(target, 0.0) for item in set(history)) for target in range(len(neighbors))]


def naive_ranks_by(scores: list[list[float]], interactions: Interactions, held_out: HeldOut) -> list[int]:
    """Return the rank of each held-out item by one list of scores for each, with the history hidden."""
    ranks = []
    starts = interactions.offsets.tolist()
    for own, user, item, end in zip(
        scores, held_out.users.tolist(), held_out.items.tolist(), held_out.history_ends.tolist(), strict=True
    ):
        seen = set(events_of(interactions, user)[0][: end - starts[user]])
        candidates = [each for each in range(interactions.num_items) if each == item or each not in seen]
        ordered = sorted(candidates, key=lambda each: (-round(own[each], 6), each))
        ranks.append(1 + ordered.index(item))
    return ranks
