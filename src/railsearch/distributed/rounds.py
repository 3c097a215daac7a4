"""The rounds of an exact search: early ones find a score that k items reach, and later ones skip all items below it.

On its own, a shard could only skip items below its own k-th score, which is lower than that of all shards together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from railsearch.index import Adaptive, Average, Strategy, TwoPass

SEEDS_OF_TWO_PASS = 128
SEEDS_OF_ADAPTIVE = 64
GROWTH = 4
"""The items of a round, as a multiple of those of the round before."""
SHARE_IN_ORDER = 1 / 32
"""As in `Adaptive`: the share of items that are scored in order."""
MOST_SEEDS = 2**14


@dataclass(frozen=True, slots=True)
class Round:
    """An early round: every shard scores at most n items, and returns all of them."""

    strategy: Strategy
    n: int
    max_gap: float | None = None
    """The search ends here if the gap is no larger; None if another round must follow."""


def early_rounds(strategy: Strategy, k: int, num_shards: int, num_items: int) -> Iterator[Round]:
    """Yield the rounds before the last one, in which all shards search with the strategy itself.

    All shards together score about as many items as one machine does. `TwoPass` has one early round. `Adaptive` scores
    items in order, so that it often ends in its second round, and has more of them if many items are needed.

    >>> list(early_rounds(TwoPass(), k=100, num_shards=8, num_items=10**6))
    [Round(strategy=Average(n=25), n=25, max_gap=None)]
    >>> [each.n for each in early_rounds(Adaptive(), k=10, num_shards=8, num_items=10**6)]
    [8, 32, 128, 512, 2048]
    """
    if num_shards == 1:
        return
    if isinstance(strategy, TwoPass):
        n = _share(max(2 * k, SEEDS_OF_TWO_PASS), num_shards)
        yield Round(Average(n), n)
    if isinstance(strategy, Adaptive) and strategy.max_scored is None:
        width, spent = max(2 * k, SEEDS_OF_ADAPTIVE), 0
        while spent <= SHARE_IN_ORDER * num_items:
            n = _share(width, num_shards)
            yield Round(Adaptive(strategy.max_gap, max_scored=n), n, strategy.max_gap)
            if width == MOST_SEEDS:
                return
            spent, width = spent + width, max(width, min(GROWTH * width, MOST_SEEDS))


def _share(count: int, num_shards: int) -> int:
    return -(-count // num_shards)
