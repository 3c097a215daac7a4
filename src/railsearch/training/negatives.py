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
    ALL = "all"
    """Every item, shared by all examples of a batch: the full softmax; `num_negatives` is ignored."""
    MIXED = "mixed"
    """Half drawn uniformly, half from the positives of the batch, shared by all examples of a batch. An offset of each
    score corrects for how often the item is drawn."""
    HARD = "hard"
    """Half drawn uniformly, half found in each step as the best items of some examples under the model as it is, shared
    by all examples of a batch. Items of an example's own history do not count."""


SHARED = frozenset({Negatives.UNIFORM, Negatives.ALL, Negatives.MIXED, Negatives.HARD})
"""Kinds whose negatives all examples of a batch share."""


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """The right item of each of E examples, and the negatives of the group that the example belongs to."""

    positives: Tensor  # (E,) item rows
    negatives: Tensor  # (G, n) item rows
    group_sizes: tuple[int, ...]  # (G,) number of examples that share each row of negatives, in order; sums to E
    excluded: Tensor | None = None  # (E, n) negatives that do not count because they are also right; or (B, n)
    excluded_rows: Tensor | None = None  # (E,) row of `excluded` for each example; by default example e has row e
    offsets: Tensor | None = None  # (G, n) added to the scores of the negatives, see `popularity_offsets`

    def excluded_of(self, examples: slice) -> Tensor | None:
        """Return the negatives that do not count for these examples (e, n)."""
        if self.excluded is None or self.excluded_rows is None:
            return None if self.excluded is None else self.excluded[examples]
        return self.excluded[self.excluded_rows[examples]]

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
            offsets=counts.log()[None],
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
    return (len(items) / (num_items * counts.clamp(min=1))).log()


def mixed_offsets(items: Tensor, *, num_items: int, num_negatives: int) -> Tensor:
    """Return an offset of the score of each item (N,) as a mixed negative, from the right items of all pairs (M,).

    Half of the negatives are drawn uniformly and half as often as they are right, so an item is drawn with the mean of
    both chances. The offset is the log of the uniform chance over that mean: the weighted sum over mixed negatives has
    the same expectation as the sum over uniform ones, and less variance if popular items have high scores. Of an odd
    number of negatives, one more is drawn uniformly, and the mean has these weights.

    >>> mixed_offsets(torch.tensor([0, 1, 1, 1]), num_items=2, num_negatives=4).exp().tolist()  # doctest: +ELLIPSIS
    [1.333..., 0.8]
    >>> mixed_offsets(torch.tensor([0, 1, 1, 1]), num_items=2, num_negatives=3).exp().tolist()  # doctest: +ELLIPSIS
    [1.2..., 0.857...]
    """
    shares = torch.bincount(items, minlength=num_items).double() / max(len(items), 1)  # (N,)
    num_others = num_other_negatives(Negatives.MIXED, num_negatives)
    return (num_negatives / (num_negatives - num_others + num_others * num_items * shares)).log()


def score_offsets(kind: Negatives, items: Tensor, *, num_items: int, num_negatives: int) -> Tensor | None:
    """Return the offset of each item's score (N,) as a negative of this kind, from the right items of all pairs."""
    if kind is Negatives.IN_BATCH:
        return popularity_offsets(items, num_items=num_items)
    if kind is Negatives.MIXED:
        return mixed_offsets(items, num_items=num_items, num_negatives=num_negatives)
    return None


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

    def of(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return all right items of these queries (E,): the places of their queries (r,), ascending, and rows (r,).

        >>> places, items = RightPairs(torch.tensor([[0, 2], [1, 0], [0, 1]]), num_items=3).of(torch.tensor([1, 0]))
        >>> places.tolist(), items.tolist()
        ([0, 1, 1], [0, 1, 2])
        """
        starts, ends = torch.searchsorted(
            self._keys, torch.stack([queries, queries + 1]) * self._num_items
        )  # (E,) each: the stretch of a query's keys
        counts = ends - starts  # (E,)
        places = torch.arange(len(queries), device=queries.device).repeat_interleave(counts)  # (r,)
        first = counts.cumsum(dim=0) - counts  # (E,)
        keys = self._keys[torch.arange(len(places), device=queries.device) + (starts - first)[places]]  # (r,)
        return places, keys % self._num_items

    def _among_shared(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return which of n shared items (n,) are right, (E, n): the right items of each query are looked up."""
        owners, rights = self.of(queries)  # (r,), (r,)
        distinct, places = torch.unique(items, return_inverse=True)  # (u,), (n,)
        column = torch.full((self._num_items,), -1, device=items.device)  # (N,)
        column[distinct] = torch.arange(len(distinct), device=items.device)
        found = column[rights]  # (r,)
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

    Of hard negatives only the uniform half is drawn; `find_hard_items` finds the rest.

    Args:
        kind: source of the negatives.
        positives: right item of each example, ordered by history.
        history_lengths: (B,) number of examples of each history; None if examples have no histories.
        pool: positives of the complete batch in all processes, for in-batch negatives.
        num_items: number of item rows.
        num_negatives: n, negatives of each group; ignored for all items and for in-batch negatives without histories.
        generator: source of the random numbers, on the CPU.
    """
    if kind is Negatives.IN_BATCH and history_lengths is None:
        return Contrast(positives, pool[None], (len(positives),))
    if kind is Negatives.ALL:
        return Contrast(positives, torch.arange(num_items, device=positives.device)[None], (len(positives),))
    if kind is Negatives.PER_EXAMPLE:
        group_sizes = [1] * len(positives)
    elif kind in SHARED or history_lengths is None:
        group_sizes = [len(positives)]
    else:
        group_sizes = history_lengths.tolist()

    def draw(high: int, count: int) -> Tensor:
        return torch.randint(high, (len(group_sizes), count), generator=generator).to(positives.device)  # (G, count)

    num_others = num_other_negatives(kind, num_negatives)
    drawn = [] if num_others == num_negatives else [draw(num_items, num_negatives - num_others)]
    if num_others and kind is not Negatives.HARD:
        drawn.append(pool[draw(len(pool), num_others)])
    return Contrast(positives, torch.cat(drawn, dim=1), tuple(group_sizes))


def num_other_negatives(kind: Negatives, num_negatives: int) -> int:
    """Return how many of the negatives are not drawn uniformly."""
    if kind is Negatives.IN_BATCH:
        return num_negatives
    return num_negatives // 2 if kind in {Negatives.MIXED, Negatives.HARD} else 0
