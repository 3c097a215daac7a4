"""Negatives: the items that the loss compares with the right item of each example."""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Generator, Tensor


class Negatives(StrEnum):
    """The source of negatives, and the examples of a batch that share them."""

    UNIFORM = "uniform"
    """Drawn uniformly from all items, with replacement, and shared by all examples of a batch."""
    PER_HISTORY = "per_history"
    """Drawn uniformly, and shared by the positions of one history."""
    PER_EXAMPLE = "per_example"
    """Drawn uniformly for each example, as in the paper; takes more time and memory bandwidth."""
    IN_BATCH = "in_batch"
    """Drawn from the positives of the other examples, so that popular items are drawn more often; each history has its
    own."""


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """The right item of each of E examples, and the negatives of the group that the example belongs to."""

    positives: Tensor  # (E,) item rows
    negatives: Tensor  # (G, n) item rows
    group_sizes: tuple[int, ...]  # (G,) number of examples that share each row of negatives, in order; sums to E
    excluded: Tensor | None = None  # (E, n) negatives that do not count because they are also right
    offsets: Tensor | None = None  # (G, n) added to the scores of the negatives, see `popularity_offsets`

    def distinct_items(self) -> "tuple[Tensor, Contrast]":
        """Return the distinct item rows (U,), ascending, and this contrast with positions in them instead of rows."""
        rows, places = torch.unique(torch.cat([self.positives, self.negatives.flatten()]), return_inverse=True)
        positives, negatives = places.split([len(self.positives), self.negatives.numel()])
        return rows, replace(self, positives=positives, negatives=negatives.view_as(self.negatives))

    def merged(self) -> "Contrast":
        """Return the same contrast with each negative once, if all examples share their negatives.

        A negative that was drawn c times counts as one whose offset is larger by log(c).

        >>> drawn = Contrast(torch.tensor([0, 1]), torch.tensor([[5, 3, 5]]), (2,))
        >>> merged = drawn.merged()
        >>> merged.negatives.tolist(), merged.offsets.exp().tolist()
        ([[3, 5]], [[1.0, 2.0]])
        """
        if len(self.negatives) != 1:
            return self
        distinct, places = torch.unique(self.negatives[0], return_inverse=True)  # (u,), (n,)
        if len(distinct) == len(places):
            return self
        given = torch.zeros_like(places, dtype=torch.float64) if self.offsets is None else self.offsets[0].double()
        counts = given.new_zeros(len(distinct)).index_add_(0, places, given.exp())  # (u,)
        one_of_each = torch.empty_like(distinct).scatter_(0, places, torch.arange(len(places), device=places.device))
        return replace(
            self,
            negatives=distinct[None],
            excluded=None if self.excluded is None else self.excluded[:, one_of_each],  # equal for equal items
            offsets=counts.log().to(torch.float32 if self.offsets is None else self.offsets.dtype)[None],
        )


def popularity_offsets(items: Tensor, *, num_items: int) -> Tensor:
    """Return an offset of the score of each item (N,) as an in-batch negative, from the right items of all pairs (M,).

    An item is drawn as often as it is right. Without an offset, popular items would be pushed down for every query: the
    similarity would learn how much a query raises the chance of an item, not the chance itself. The offset is the log
    of the average share of an item over its own share (Yi et al. 2019); it is 0 if all items are equally popular.

    >>> popularity_offsets(torch.tensor([0, 1, 1, 1]), num_items=2).exp().tolist()  # doctest: +ELLIPSIS
    [2.0, 0.666...]
    """
    counts = torch.bincount(items, minlength=num_items).double()  # (N,)
    return (len(items) / (num_items * counts.clamp(min=1))).log().float()


class RightPairs:
    """The labelled pairs of all queries: a negative that is right for its query does not count."""

    def __init__(self, pairs: Tensor, *, num_items: int) -> None:
        """Sort the (query row, item row) pairs (M, 2)."""
        self._num_items = num_items
        self._keys = torch.unique(pairs[:, 0] * num_items + pairs[:, 1])  # (m,) by query, then item

    def among(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return which items, (1, n) or (E, n) rows, are right for which queries (E,), as (E, n).

        >>> right = RightPairs(torch.tensor([[0, 2], [1, 0]]), num_items=3)
        >>> right.among(torch.tensor([0, 1]), torch.tensor([[0, 1, 2]])).tolist()
        [[False, False, True], [True, False, False]]
        """
        if len(items) == 1:
            return self._among_shared(queries, items[0])
        keys = queries[:, None] * self._num_items + items  # (E, n)
        places = torch.searchsorted(self._keys, keys).clamp_max(len(self._keys) - 1)  # (E, n)
        is_right: Tensor = self._keys[places] == keys  # (E, n)
        return is_right

    def _among_shared(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return which of n shared items (n,) are right, (E, n): the right items of each query are looked up."""
        starts, ends = torch.searchsorted(
            self._keys, torch.stack([queries, queries + 1]) * self._num_items
        )  # (E,) each: the stretch of a query's keys
        counts = ends - starts  # (E,)
        owners = torch.arange(len(queries), device=items.device).repeat_interleave(counts)  # (r,)
        first = counts.cumsum(dim=0) - counts  # (E,)
        keys = self._keys[torch.arange(len(owners), device=items.device) + (starts - first)[owners]]  # (r,)
        distinct, places = torch.unique(items, return_inverse=True)  # (u,), (n,)
        column = torch.full((self._num_items,), -1, device=items.device)  # (N,)
        column[distinct] = torch.arange(len(distinct), device=items.device)
        found = column[keys % self._num_items]  # (r,)
        is_right = torch.zeros(len(queries), len(distinct), dtype=torch.bool, device=items.device)  # (E, u)
        is_right[owners[found >= 0], found[found >= 0]] = True
        return is_right[:, places]  # (E, n)


def draw_contrast(
    kind: Negatives,
    positives: Tensor,
    history_lengths: Tensor | None,
    *,
    pool: Tensor,
    num_items: int,
    num_negatives: int,
    generator: Generator,
) -> Contrast:
    """Draw the negatives of a batch whose positives are the item rows (E,).

    Args:
        kind: source of the negatives.
        positives: right item of each example, ordered by history.
        history_lengths: (B,) number of examples of each history; None if examples have no histories.
        pool: positives of the complete batch in all processes, for in-batch negatives.
        num_items: number of item rows.
        num_negatives: n, negatives of each group; ignored for in-batch negatives without histories.
        generator: source of the random numbers, on the CPU.
    """
    if kind is Negatives.IN_BATCH and history_lengths is None:
        return Contrast(positives, pool[None], (len(positives),))
    if kind is Negatives.PER_EXAMPLE:
        group_sizes = [1] * len(positives)
    elif kind is Negatives.UNIFORM or history_lengths is None:
        group_sizes = [len(positives)]
    else:
        group_sizes = history_lengths.tolist()
    is_in_batch = kind is Negatives.IN_BATCH
    drawn = torch.randint(
        len(pool) if is_in_batch else num_items, (len(group_sizes), num_negatives), generator=generator
    ).to(positives.device)  # (G, n)
    return Contrast(positives, pool[drawn] if is_in_batch else drawn, tuple(group_sizes))
