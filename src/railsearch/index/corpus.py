"""The item side that every strategy searches, and the rounding that its certificates allow for."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.index.engines import Engine, Flat
from railsearch.index.metadata import stack
from railsearch.index.segment import Segment, lengths
from railsearch.kernels import Kernel, RowFilter, Stage, choose_kernel, timed
from railsearch.similarity import ItemParts, QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame


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
class Stretch:
    """Rows that lie together in one segment."""

    first_row: int
    """Where they begin in the corpus."""
    segment: Segment
    parts: ItemParts

    def __len__(self) -> int:
        return len(self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Items under a similarity: the rows of all segments, one after the other, some of them no longer live."""

    similarity: Similarity
    segments: tuple[Segment, ...]
    kernel: Kernel
    engine: Engine
    row_ids: Tensor  # (N,) the id of every row, live or not
    is_live: Tensor | None  # (N,) bool; None where all are
    ids: Tensor  # (M,) of live items, ascending
    rows: Tensor  # (M,) the row of each of them
    places: Tensor | None
    """Where each row (N,) stands in the order of ids, which decides ties; None where rows are in that order."""

    @classmethod
    def build(cls, similarity: Similarity, segments: Sequence[Segment], engine: Engine | None = None) -> "Corpus":
        """Put segments one after the other; at least one, empty if need be."""
        row_ids = segments[0].ids if len(segments) == 1 else torch.cat([segment.ids for segment in segments])  # (N,)
        is_live = None
        if any(segment.is_live is not None for segment in segments):
            is_live = torch.zeros_like(row_ids, dtype=torch.bool)  # (N,)
            for first, segment in zip(_starts(segments), segments, strict=True):
                is_live[first + segment.live_rows] = True
        rows = torch.arange(len(row_ids), device=row_ids.device) if is_live is None else is_live.nonzero().flatten()
        ids, places = row_ids if is_live is None else row_ids[rows], None
        if bool((ids[1:] < ids[:-1]).any()):
            ids, order = ids.sort()
            rows = rows[order]
            places = torch.zeros_like(row_ids)  # (N,)
            places[rows] = torch.arange(len(rows), device=rows.device)
        return cls(
            similarity=similarity,
            segments=tuple(segments),
            kernel=choose_kernel(similarity, segments[0].parts.components.device),
            engine=Flat() if engine is None else engine,
            row_ids=row_ids,
            is_live=is_live,
            ids=ids,
            rows=rows,
            places=places,
        )

    def __len__(self) -> int:
        return len(self.row_ids)

    def __getitem__(self, rows: Tensor) -> ItemParts:
        """The parts of rows (B, C): components (B, C, Px, d) and gate (B, C, P)."""
        if len(self.segments) == 1:
            return self.segments[0].parts[rows]
        flat = rows.flatten()
        example = self.segments[0].parts
        components = example.components.new_empty(len(flat), *example.components.shape[1:])  # (B * C, Px, d)
        gate = None if example.gate is None else example.gate.new_empty(len(flat), example.gate.shape[1])  # (B * C, P)
        for stretch in self.stretches():
            is_here = (flat >= stretch.first_row) & (flat < stretch.first_row + len(stretch))  # (B * C,)
            found = stretch.parts[flat[is_here] - stretch.first_row]
            components[is_here] = found.components
            if gate is not None and found.gate is not None:
                gate[is_here] = found.gate
        return ItemParts(
            components.view(*rows.shape, *components.shape[1:]),
            None if gate is None else gate.view(*rows.shape, gate.shape[1]),
        )

    @property
    def like(self) -> Tensor:
        """An empty tensor of the precision and device that scores are computed in."""
        weights = next(iter(self.similarity.parameters()), None)
        return self.segments[0].sums[:0] if weights is None else weights.detach().flatten()[:0]

    @property
    def row_filter(self) -> RowFilter | None:
        """What no query may be given: rows that are not live."""
        if self.is_live is None:
            return None
        return RowFilter.from_lists([], device=self.is_live.device, is_allowed=self.is_live)

    def stretches(self, size: int | None = None) -> Iterator[Stretch]:
        """All rows in their order, cut where a segment ends, or after `size` rows."""
        for begin, segment in zip(_starts(self.segments), self.segments, strict=True):
            step = max(1, len(segment) if size is None else size)
            for first in range(0, len(segment), step):
                yield Stretch(begin + first, segment, segment.parts[first : first + step])

    @property
    def frame(self) -> "DataFrame | None":
        """Metadata of every row (N), live or not; None where the index has none."""
        return stack([segment.metadata.frame for segment in self.segments if segment.metadata is not None])

    @property
    def has_metadata(self) -> bool:
        """Whether there is a `frame`, without reading it."""
        return self.segments[0].metadata is not None

    def rows_of(self, ids: Tensor) -> Tensor:
        """Rows of those ids that are live, each once; others are passed over."""
        distinct = torch.unique(ids).to(self.ids.device)
        if not len(self.ids):
            return self.rows
        found = torch.searchsorted(self.ids, distinct).clamp_max(len(self.ids) - 1)
        return self.rows[found[self.ids[found] == distinct]]

    def tie_order(self, rows: Tensor) -> Tensor:
        """What decides between equal scores of rows (B, C): the smaller is better."""
        return rows if self.places is None else self.places[rows]

    @timed(Stage.FIRST_STAGE)
    def bounds(self, query_parts: QueryParts, row_filter: RowFilter | None, stretch: Stretch | None = None) -> Tensor:
        """Best component score (B, N) of every item, minus infinity where it is hidden; no score is above it.

        Where the similarity promises no such thing, the bound is infinite and nothing is ever passed over for it.
        With a stretch, of its items only.
        """
        if stretch is None:
            return torch.cat([self.bounds(query_parts, row_filter, each) for each in self.stretches()], dim=1)  # (B, N)
        if self.similarity.is_certifiable:
            bounds = self.kernel.bounds(query_parts, stretch.parts)  # (B, n)
        else:
            bounds = query_parts.components.new_full((len(query_parts), len(stretch)), torch.inf)  # (B, n)
        if row_filter is not None:
            row_filter.hide(bounds, stretch.first_row)
        return bounds

    def slack(self, query_parts: QueryParts) -> Tensor:
        """How far above its bound the score of an item may come out through rounding alone (B,).

        Bound and score are computed from the same components in different orders. A dot product of d terms is off
        by at most d roundings of the product of the two lengths, on either side; the mixture adds the roundings of
        P weights that should sum to 1, and of their sum. A storage of lower precision adds its own share.
        """
        num_pairs = self.similarity.num_query_components * self.similarity.num_item_components
        num_roundings = 2 * self.similarity.component_dim + 4 * num_pairs + 16
        share = num_roundings * self.kernel.roundoff.relative + STORAGE_SLACK.get(
            self.segments[0].parts.components.dtype, 0.0
        )
        return self._largest_score(query_parts) * share  # (B,)

    def trivial_ceiling(self, query_parts: QueryParts) -> Tensor:
        """What no score can exceed whatever the item (B,): 1 / temperature where components have length 1."""
        if not self.similarity.is_certifiable:
            return self.slack(query_parts).fill_(torch.inf)  # (B,)
        return self._largest_score(query_parts) + self.slack(query_parts)  # (B,)

    def _largest_score(self, query_parts: QueryParts) -> Tensor:
        longest_query = lengths(query_parts.components).amax(dim=1)  # (B,)
        longest_item = max(segment.longest for segment in self.segments)
        return (longest_query * (longest_item / self.similarity.temperature)).to(query_parts.components.dtype)  # (B,)


def _starts(segments: Sequence[Segment]) -> list[int]:
    """The row of the corpus that each segment begins at."""
    return list(itertools.accumulate((len(segment) for segment in segments[:-1]), initial=0))
