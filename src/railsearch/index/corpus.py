"""The corpus: the items of all segments under one similarity, as strategies search them."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.memory import check_memory
from railsearch.index.engines import (
    CollectionTable,
    Engine,
    Flat,
    GuardedTable,
    Origin,
    SlotTable,
    Stamp,
    Table,
    as_collection_engine,
    layout_of,
)
from railsearch.index.keys import NOT_FOUND, has_keys, to_integers
from railsearch.index.metadata import KEY, stack, without_keys
from railsearch.index.segment import Segment, sort_runs
from railsearch.kernels import Kernel, KernelName, RowFilter, choose_kernel, use_kernel
from railsearch.similarity import ItemParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame


class Precision(StrEnum):
    """The precision of stored item components and gates; scores are computed from them in fp32."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def dtype(self) -> torch.dtype:
        """The tensor type of this precision."""
        return {Precision.FP32: torch.float32, Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}[self]


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Consecutive rows of one segment."""

    first_row: int
    """Their first row in the corpus."""
    segment: Segment
    first: int
    """Their first row in the segment."""
    last: int
    """The row after their last one."""

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def parts(self) -> ItemParts:
        """Their item side."""
        return self.segment.parts_between(self.first, self.last)


@dataclass(frozen=True, slots=True, eq=False)
class TableStretch:
    """Consecutive rows of the corpus, and the table of an engine that holds them."""

    first_row: int
    num_rows: int
    table: Table


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Items under a similarity: the rows of all segments, one after the other, including removed items."""

    similarity: Similarity
    segments: tuple[Segment, ...]
    kernel: Kernel
    wanted_kernel: KernelName | None
    """The kernel that the user asked for; None for the fastest."""
    engine: Engine
    row_ids: Tensor  # (N,) the id of every row, live or not
    is_live: Tensor | None  # (N,) bool; None if all are
    ids: Tensor  # (M,) of live items, ascending
    rows: Tensor  # (M,) the row of each of them
    places: Tensor | None
    """The place of each row (N,) in the order of ids, which decides ties; None if rows have that order."""
    like: Tensor
    """An empty tensor with the precision and device of scores."""
    origin: Origin | None
    """The index folder and version that the segments come from; None in memory."""
    collection: CollectionTable | None
    """The collection of the engine, if it keeps one instead of tables."""

    @classmethod
    def build(
        cls,
        similarity: Similarity,
        segments: Sequence[Segment],
        engine: Engine | None = None,
        kernel: KernelName | None = None,
        origin: Origin | None = None,
    ) -> "Corpus":
        """Put segments one after the other; there is at least one, which may be empty."""
        row_ids = segments[0].ids if len(segments) == 1 else torch.cat([segment.ids for segment in segments])  # (N,)
        is_live = None
        if any(segment.is_live is not None for segment in segments):
            is_live = torch.zeros_like(row_ids, dtype=torch.bool)  # (N,)
            for first, segment in zip(_starts(segments), segments, strict=True):
                is_live[first + segment.live_rows] = True
        rows = torch.arange(len(row_ids), device=row_ids.device) if is_live is None else is_live.nonzero().flatten()
        ids, places = row_ids if is_live is None else row_ids[rows], None
        if bool((ids[1:] < ids[:-1]).any()):
            ids, order = sort_runs(ids)
            rows = rows[order]
            places = torch.zeros_like(row_ids)  # (N,)
            places[rows] = torch.arange(len(rows), device=rows.device)
        with use_kernel(kernel):
            chosen = choose_kernel(similarity, segments[0].stored_parts.components.device)
        weights = next(iter(similarity.parameters()), None)
        collection = None
        if engine is not None and origin is not None and (keeper := as_collection_engine(engine)) is not None:
            stamp = stamp_of(similarity, segments, origin, num_items=len(ids))
            collection = CollectionTable(keeper, stamp, ids=ids, rows=rows, num_rows=len(row_ids))
        return cls(
            similarity=similarity,
            segments=tuple(segments),
            kernel=chosen,
            wanted_kernel=kernel,
            engine=Flat() if engine is None else engine,
            row_ids=row_ids,
            is_live=is_live,
            ids=ids,
            rows=rows,
            places=places,
            like=segments[0].stored_sums[:0] if weights is None else weights.detach().flatten()[:0],
            origin=origin,
            collection=collection,
        )

    def with_segments(
        self, segments: Sequence[Segment], similarity: Similarity | None = None, origin: Origin | None = None
    ) -> "Corpus":
        """Return other segments with the same engine and kernel, under the same similarity if no other is given."""
        chosen = self.similarity if similarity is None else similarity
        return Corpus.build(chosen, segments, self.engine, self.wanted_kernel, origin)

    def __len__(self) -> int:
        return len(self.row_ids)

    def __getitem__(self, rows: Tensor) -> ItemParts:
        """Return the parts of rows (B, C): components (B, C, Px, d) and gate (B, C, P)."""
        if len(self.segments) == 1:
            return self.segments[0].parts_of(rows)
        flat = rows.flatten()
        example = self.segments[0].stored_parts
        components = example.components.new_empty(len(flat), *example.components.shape[1:])  # (B * C, Px, d)
        gate = None if example.gate is None else example.gate.new_empty(len(flat), example.gate.shape[1])  # (B * C, P)
        for stretch in self.stretches():
            is_here = (flat >= stretch.first_row) & (flat < stretch.first_row + len(stretch))  # (B * C,)
            found = stretch.segment.parts_of(flat[is_here] - stretch.first_row)
            components[is_here] = found.components
            if gate is not None and found.gate is not None:
                gate[is_here] = found.gate
        return ItemParts(
            components.view(*rows.shape, *components.shape[1:]),
            None if gate is None else gate.view(*rows.shape, gate.shape[1]),
        )

    def pieces_of(self, rows: Tensor) -> list[ItemParts]:
        """Return the parts of all rows where they lie, one piece for each segment; only the given rows may be read."""
        if not self.is_checked:
            wanted = torch.unique(rows)  # ascending
            for first, segment in zip(_starts(self.segments), self.segments, strict=True):
                if segment.checks is not None:
                    limits = torch.searchsorted(wanted, torch.tensor([first, first + len(segment)]))
                    segment.checks.check_rows(wanted[limits[0] : limits[1]] - first)
        return [segment.stored_parts for segment in self.segments]

    @property
    def is_checked(self) -> bool:
        """Whether the parts of every item were checked; only then is something known of items that were not read."""
        return all(segment.checks is None or segment.checks.has_checked_parts for segment in self.segments)

    @property
    def row_filter(self) -> RowFilter | None:
        """The filter that hides removed items from every query; None if there are none."""
        if self.is_live is None:
            return None
        return RowFilter.from_lists([], device=self.is_live.device, is_allowed=self.is_live)

    def stretches(self, size: int | None = None) -> Iterator[Stretch]:
        """Yield all rows in order, cut at the end of each segment and after every `size` rows."""
        for begin, segment in zip(_starts(self.segments), self.segments, strict=True):
            step = max(1, len(segment) if size is None else size)
            for first in range(0, len(segment), step):
                yield Stretch(begin + first, segment, first, min(first + step, len(segment)))

    def sum_tables(self, engine: Engine) -> Iterator[TableStretch]:
        """Yield all rows in order, with tables of the sum of each item's components."""
        if (whole := self._of_collection(engine, None)) is not None:
            yield whole
            return
        for stretch in self.stretches():
            yield TableStretch(stretch.first_row, len(stretch), stretch.segment.sum_table(engine))

    def component_tables(self, engine: Engine, component: int) -> Iterator[TableStretch]:
        """Yield all rows in order, with tables of one component of each item."""
        if (whole := self._of_collection(engine, component)) is not None:
            yield whole
            return
        for stretch in self.stretches():
            yield TableStretch(stretch.first_row, len(stretch), stretch.segment.component_table(engine, component))

    def _of_collection(self, engine: Engine, component: int | None) -> TableStretch | None:
        if self.collection is None or engine is not self.engine:
            return None
        guarded = GuardedTable(engine, self.collection, len(self))
        num_slots = self.similarity.num_item_components
        return TableStretch(0, len(self), SlotTable(guarded, num_slots=num_slots, slot=component))

    def prepare_engine(self) -> None:
        """Open or build all tables of the engine, or check that its collection holds these items.

        Refuses to if the tables need more memory than there is.
        """
        self.check_collection()
        has_components = not self.engine.sees_every_row or self.engine.supports_threshold
        check_memory(
            self.engine_bytes() + (self.engine_bytes(by_component=True) if has_components else 0),
            work=f"the set of tables of {self.engine.key} for {len(self):,} items",
            remedy="choose an engine with smaller tables",
        )
        for segment in self.segments if self.collection is None else ():
            segment.prepare(self.engine)

    def list_bytes(self, n: int) -> int:
        """Return the bytes of a list of the n best rows of every segment, with their scores."""
        return sum(min(n, len(segment)) for segment in self.segments) * (8 + self.like.element_size())

    def engine_bytes(self, *, by_component: bool = False) -> int:
        """Return the least memory of the tables that a search by average, or by component, has to open or build."""
        if self.collection is not None:
            return 0
        return sum(segment.table_bytes(self.engine, by_component=by_component) for segment in self.segments)

    def check_collection(self) -> None:
        """Check that the collection of the engine holds these items, if it keeps one; raise an EngineError if not."""
        if self.collection is not None:
            self.collection.check()

    def close_tables(self) -> None:
        """Close all tables of engines, and the connection to a collection."""
        for segment in self.segments:
            segment.tables.close()
        if self.collection is not None:
            self.collection.close()

    @property
    def frame(self) -> "DataFrame | None":
        """Metadata of every row (N), live or not; None if the index has none."""
        return stack([segment.metadata.frame for segment in self.segments if segment.metadata is not None])

    @property
    def has_keys(self) -> bool:
        """Whether ids are strings; does not read them."""
        return has_keys(self.segments)

    @property
    def keys(self) -> list[str]:
        """The string ids of live items, one for each of `ids`; raises InvalidInputError if ids are integers."""
        frame = self.frame
        if frame is None or not self.has_keys:
            raise InvalidInputError("the ids of this index are integers; take them from index.ids.")
        return frame[KEY].gather(self.rows.cpu().numpy()).to_list()

    @property
    def live_metadata(self) -> "DataFrame | None":
        """Metadata of live items (M), one row for each of `ids`, without string ids; None if the index has none."""
        frame = without_keys(self.frame)
        return None if frame is None else frame[self.rows.cpu().numpy()]

    @property
    def has_metadata(self) -> bool:
        """Whether there is a `frame`; does not read it."""
        return self.segments[0].metadata is not None

    def find(self, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,); -1 for those of no live item."""
        integers = to_integers(ids, self.segments, name="ids")  # (n,)
        ids = self.ids.cpu()
        if not len(ids):
            return torch.full_like(integers, NOT_FOUND)
        found = ids[torch.searchsorted(ids, integers).clamp_max(len(ids) - 1)]  # (n,)
        return integers.masked_fill(found != integers, NOT_FOUND)

    def rows_of(self, ids: Tensor) -> Tensor:
        """Return the rows of those ids that are live, each once; other ids are ignored."""
        distinct = torch.unique(ids).to(self.ids.device)
        if not len(self.ids):
            return self.rows
        found = torch.searchsorted(self.ids, distinct).clamp_max(len(self.ids) - 1)
        return self.rows[found[self.ids[found] == distinct]]

    def tie_order(self, rows: Tensor) -> Tensor:
        """Return the order of rows (B, C) among equal scores: the smaller value is better."""
        return rows if self.places is None else self.places[rows]


def vector_dim(engine: Engine, similarity: Similarity) -> int:
    """Return the dimension of the vectors that an engine holds: one component, or all of an item in a collection."""
    is_whole = as_collection_engine(engine) is not None
    return similarity.component_dim * (similarity.num_item_components if is_whole else 1)


def stamp_of(similarity: Similarity, segments: Sequence[Segment], origin: Origin, *, num_items: int) -> Stamp:
    """Return the stamp of a collection that holds these segments."""
    return Stamp(
        birth=origin.birth,
        fingerprint=origin.fingerprint,
        version=origin.version,
        layout=layout_of((segment.name, segment.is_live) for segment in segments),
        num_items=num_items,
        num_components=similarity.num_item_components,
        component_dim=similarity.component_dim,
        is_complete=True,
    )


def _starts(segments: Sequence[Segment]) -> list[int]:
    """Return the first row of each segment in the corpus."""
    return list(itertools.accumulate((len(segment) for segment in segments[:-1]), initial=0))
