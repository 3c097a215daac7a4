"""Scores of a teacher: lists of items for each query, from a function, a table or a file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Generator, Tensor
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable
from railsearch.training.distillation import ScoredLists

TeacherLike = TypeAliasType("TeacherLike", Callable[[Any, Any], ArrayLike] | ArrowTable | str | Path)
"""A function of queries (n,) and items (n,) that returns scores (n,); or a table or a file of query, item, score."""


@dataclass(frozen=True, slots=True, eq=False)
class TeacherScores:
    """The scores of a teacher, as one list of items for each query that it has scored."""

    queries: Tensor  # (Q,) query rows, ascending
    offsets: Tensor  # (Q + 1,) place of the first item of each list; the last value is the number of scores
    items: Tensor  # (M,) item rows, ascending within a list
    scores: Tensor  # (M,) fp64
    source: str

    @classmethod
    def from_triples(
        cls, queries: Tensor, items: Tensor, scores: Tensor, *, source: str, numbers: Tensor | None = None
    ) -> "TeacherScores":
        """Group scores (M,) of query-item pairs by query, and check that they can teach an order.

        Errors name rows by `numbers` (M,), their numbers in the source; by default they are numbered from 0.

        >>> rows = torch.tensor([1, 0, 1, 0])
        >>> found = TeacherScores.from_triples(rows, torch.tensor([3, 5, 2, 4]), torch.arange(4.0), source="a table")
        >>> found.queries.tolist(), found.items.tolist(), found.scores.tolist()
        ([0, 1], [4, 5, 2, 3], [3.0, 1.0, 2.0, 0.0])
        """
        if not len(scores):
            raise InvalidInputError(f"{source} has no scores; give at least two items for some query.")
        numbers = torch.arange(len(scores)) if numbers is None else numbers
        is_bad = ~torch.isfinite(scores)
        if bool(is_bad.any()):
            row = int(is_bad.nonzero()[0])
            raise InvalidInputError(
                f"{source} has {int(is_bad.sum())} scores that are not finite, such as {float(scores[row])} in row "
                f"{int(numbers[row])}; repair or drop them."
            )
        width = int(items.max()) + 1
        keys, order = (queries * width + items).sort(stable=True)
        is_repeated = keys[1:] == keys[:-1]
        differs = is_repeated & (scores[order[1:]] != scores[order[:-1]])
        if bool(differs.any()):
            row = int(numbers[order[1:][differs][0]])
            raise InvalidInputError(
                f"{source} gives {int(differs.sum())} query-item pairs two different scores, such as that of row {row}"
                "; keep one score of each, such as their mean."
            )
        is_first = torch.cat([torch.ones(1, dtype=torch.bool), ~is_repeated])
        keys, order = keys[is_first], order[is_first]
        found, counts = torch.unique_consecutive(keys // width, return_counts=True)  # (Q,)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])  # (Q + 1,)
        teacher = cls(found, offsets, items[order], scores.double()[order], source)
        if not bool((counts > 1).any()):
            raise InvalidInputError(
                f"{source} has one score for each of {len(found)} queries; a query needs at least 2 scored items."
            )
        if not bool((teacher.spreads() > 0).any()):
            raise InvalidInputError(
                f"{source} scores all items of a query the same, such as {float(teacher.scores[0]):g}, for all "
                f"{len(found)} queries; constant scores teach no order."
            )
        return teacher

    def __len__(self) -> int:
        return len(self.queries)

    def spreads(self) -> Tensor:
        """Return the standard deviation of the scores of each list (Q,), fp64; 0 for a list of one."""
        counts = self.offsets.diff()  # (Q,)
        owners = torch.arange(len(self)).repeat_interleave(counts)  # (M,)
        zeros = torch.zeros(len(self), dtype=torch.float64)
        means = zeros.index_add(0, owners, self.scores) / counts  # (Q,)
        squares = zeros.index_add(0, owners, (self.scores - means[owners]).square())  # (Q,)
        return (squares / counts).sqrt()

    def typical_spread(self) -> float:
        """Return the median standard deviation of the lists that are not constant."""
        spreads = self.spreads()
        return float(spreads[spreads > 0].median())

    def best_pairs(self) -> Tensor:
        """Return each query with the item that the teacher scores highest (Q, 2); ties by smaller row."""
        owners = torch.arange(len(self)).repeat_interleave(self.offsets.diff())  # (M,)
        by_score = self.scores.argsort(descending=True, stable=True)  # (M,)
        by_list = by_score[owners[by_score].argsort(stable=True)]  # (M,) best first within a list
        return torch.stack([self.queries, self.items[by_list[self.offsets[:-1]]]], dim=1)

    def draw(self, places: Tensor, count: int, *, temperature: float, generator: Generator) -> ScoredLists:
        """Draw up to `count` items of each of these lists (E,), without replacement.

        Args:
            places: numbers of lists, from 0.
            count: most items of a list.
            temperature: divides the scores.
            generator: source of the random numbers, on the CPU.
        """
        counts = self.offsets.diff()[places]  # (E,)
        owners = torch.arange(len(places)).repeat_interleave(counts)  # (T,) all items of these lists
        first = counts.cumsum(dim=0) - counts  # (E,)
        within = torch.arange(len(owners)) - first[owners]  # (T,)
        order = (owners + torch.rand(len(owners), generator=generator, dtype=torch.float64)).argsort()  # (T,)
        is_drawn = within < count  # (T,) the order keeps the lists together, so places within them stay
        rows = (self.offsets[places][owners] + within)[order][is_drawn]  # (t,)
        length = int(counts.clamp(max=count).max())
        items = torch.zeros(len(places), length, dtype=torch.int64)  # (E, L)
        scores = torch.zeros(len(places), length)
        is_given = torch.zeros(len(places), length, dtype=torch.bool)
        own, at = owners[is_drawn], (owners[is_drawn], within[is_drawn])  # (t,)
        # Losses compare the scores of one list. Without the mean, fp32 holds the differences of large scores too.
        means = torch.zeros(len(places), dtype=torch.float64).index_add(0, own, self.scores[rows]) / own.bincount()
        centered = self.scores[rows] - means[own]  # (t,)
        items[at], scores[at], is_given[at] = self.items[rows], (centered / temperature).float(), True
        items = torch.where(is_given, items, items[:, :1])  # padding repeats an item of the list
        return ScoredLists(items, scores, is_given)

    def checksum(self) -> str:
        """Return a checksum of everything, by which a resumed run knows its teacher again."""
        digest = xxhash.xxh3_64()
        for values in (self.queries, self.offsets, self.items, self.scores):
            digest.update(values.numpy().tobytes())
        return f"{len(self.scores):,} scores with checksum {digest.hexdigest()}"
