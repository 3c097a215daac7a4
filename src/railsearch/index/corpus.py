"""The item side that every strategy searches, and the rounding that its certificates allow for."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from railsearch.scoring import Hidden, Stage, timed
from railsearch.similarity import ItemParts, QueryParts, Similarity

VALUES_PER_BLOCK = 2**20
"""Component scores that a scan holds at once: 4 MiB of them."""
ROWS_PER_BATCH = 65_536
ROUNDOFF = 2.0**-24
"""What one fp32 operation may be off by, relative to its result."""


class Precision(StrEnum):
    """How item components and gates are kept in memory; scores are computed in fp32 from any of them."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def dtype(self) -> torch.dtype:
        """The tensor type of this precision."""
        return {Precision.FP32: torch.float32, Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}[self]


STORAGE_SLACK = {torch.float16: 3 * 2.0**-11, torch.bfloat16: 3 * 2.0**-8}
"""What a dot product of components of length 1 may be off by through its storage (DESIGN section 4, Rounding)."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Items under a similarity, ready to be scanned."""

    similarity: Similarity
    parts: ItemParts
    sums: Tensor  # (N, d) the sum of each item's components, for searches by average; in the precision of scores
    longest: float
    """The greatest length of a component: 1 where components are normalised."""

    @classmethod
    def build(cls, similarity: Similarity, parts: ItemParts) -> "Corpus":
        """Materialise what searches need besides the parts themselves."""
        dtype = torch.promote_types(parts.components.dtype, torch.float32)
        sums = torch.empty_like(parts.components[:, 0], dtype=dtype)  # (N, d)
        longest = 0.0
        for first in range(0, len(parts), ROWS_PER_BATCH):
            block = parts.components[first : first + ROWS_PER_BATCH].to(dtype)  # (n, Px, d)
            sums[first : first + len(block)] = block.sum(dim=1)
            longest = max(longest, float(_lengths(block).max()))
        return cls(similarity, parts, sums, longest)

    def __len__(self) -> int:
        return len(self.parts)

    def between(self, first: int, last: int) -> "Corpus":
        """The stretch of rows first to last - 1, sharing memory."""
        return Corpus(self.similarity, self.parts[first:last], self.sums[first:last], self.longest)

    @timed(Stage.FIRST_STAGE)
    def bounds(self, query_parts: QueryParts, hidden: Hidden | None, first_row: int = 0) -> Tensor:
        """Best component score (B, N) of every item, minus infinity where it is hidden; no score is above it.

        Where the similarity promises no such thing, the bound is infinite and nothing is ever passed over for it.

        `first_row` is the row that this stretch begins at in the corpus that `hidden` speaks of.
        """
        bounds = query_parts.components.new_full((len(query_parts), len(self)), torch.inf)  # (B, N)
        values_per_row = len(query_parts) * self.similarity.num_query_components * self.similarity.num_item_components
        rows_per_block = max(1, VALUES_PER_BLOCK // max(1, values_per_row))
        for first in range(0, len(self) if self.similarity.is_certifiable else 0, rows_per_block):
            rows = slice(first, first + rows_per_block)
            bounds[:, rows] = self.similarity.bounds(query_parts, self.parts[rows].to(bounds.dtype))
        if hidden is not None:
            hidden.hide(bounds, first_row)
        return bounds

    def slack(self, query_parts: QueryParts) -> Tensor:
        """How far above its bound the score of an item may come out through rounding alone (B,).

        Bound and score are computed from the same components in different orders. A dot product of d terms is off
        by at most d roundings of the product of the two lengths, on either side; the mixture adds the roundings of
        P weights that should sum to 1, and of their sum. A storage of lower precision adds its own share.
        """
        num_pairs = self.similarity.num_query_components * self.similarity.num_item_components
        num_roundings = 2 * self.similarity.component_dim + 4 * num_pairs + 16
        share = num_roundings * ROUNDOFF + STORAGE_SLACK.get(self.parts.components.dtype, 0.0)
        return self._largest_score(query_parts) * share  # (B,)

    def trivial_ceiling(self, query_parts: QueryParts) -> Tensor:
        """What no score can exceed whatever the item (B,): 1 / temperature where components have length 1."""
        if not self.similarity.is_certifiable:
            return self.slack(query_parts).fill_(torch.inf)  # (B,)
        return self._largest_score(query_parts) + self.slack(query_parts)  # (B,)

    def _largest_score(self, query_parts: QueryParts) -> Tensor:
        longest_query = _lengths(query_parts.components).amax(dim=1)  # (B,)
        return (longest_query * (self.longest / self.similarity.temperature)).to(query_parts.components.dtype)  # (B,)


def _lengths(components: Tensor) -> Tensor:
    """Lengths (rows, components), in fp64 so that the square of a small number is not lost."""
    lengths: Tensor = torch.linalg.vector_norm(components.double(), dim=-1)
    return lengths
