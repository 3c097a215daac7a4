"""From what users bring to segments: items are checked, their side of the similarity is computed, and ids are given."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from railsearch.errors import FingerprintError, InvalidInputError
from railsearch.index.metadata import Metadata, as_metadata, check_columns, stack
from railsearch.index.segment import Segment
from railsearch.inputs import ArrayLike, as_embeddings, as_ids, check_finite
from railsearch.scoring import compute_item_parts
from railsearch.similarity import ItemParts, QueryParts, Similarity
from railsearch.types import ItemBatch

SEGMENT_BYTES = 2**28
"""How much of a big build is held in memory before it is written as a segment."""

LARGEST_ID = 2**63 - 1

Items: TypeAlias = "ArrayLike | ItemParts | ItemBatch | Iterable[ItemBatch]"


@dataclass(frozen=True, slots=True, eq=False)
class CheckedBatch:
    """Items, ids and metadata that fit together."""

    items: Tensor | ItemParts
    ids: Tensor  # (n,)
    metadata: Metadata | None

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: slice) -> "CheckedBatch":
        metadata = None if self.metadata is None else Metadata(self.metadata.frame[rows])
        return CheckedBatch(self.items[rows], self.ids[rows], metadata)


def prepare_similarity(similarity: Similarity) -> Similarity:
    """A copy that scores and does not train, in the precision that scores are computed in."""
    similarity = copy.deepcopy(similarity).train(False)
    for parameter in similarity.parameters():
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
    return similarity


def one_query(similarity: Similarity) -> QueryParts:
    """The parts of one query of zeros, to see what form they have."""
    return similarity.query_parts(_zeros(similarity, similarity.query_shape))


def one_item(similarity: Similarity) -> ItemParts:
    """The parts of one item of zeros, to see what form they have."""
    return similarity.item_parts(_zeros(similarity, similarity.item_shape))


def check_parts(
    parts: QueryParts | ItemParts, expected: QueryParts | ItemParts, *, name: str, models: tuple[str, ...]
) -> None:
    """Check that ready parts are this model's, have the form that it makes, and hold nothing that poisons a score."""
    if parts.model is not None and models and parts.model not in models:
        raise FingerprintError(
            f"the {name} parts were made by model {parts.model} but this index was built with {models[0]}; "
            "make the parts with the index's own model, or build the index anew."
        )
    for kind, part, wanted in (
        ("components", parts.components, expected.components),
        ("gate", parts.gate, expected.gate),
    ):
        if (part is None) != (wanted is None):
            found, needed = ("none", "a") if part is None else ("one", "no")
            raise InvalidInputError(
                f"this similarity has {needed} {name} gate but the {name} parts have {found}; "
                "make the parts with this similarity."
            )
        if part is not None and wanted is not None:
            as_embeddings(part, name=f"{name} {kind}", shape=tuple(wanted.shape[1:]))
            if len(part) != len(parts):
                raise InvalidInputError(
                    f"{name} gate has {len(part)} rows but its components have {len(parts)}; take both from one call."
                )


class SegmentBuilder:
    """Turns batches into segments, holding no more than one segment in memory."""

    def __init__(
        self,
        similarity: Similarity,
        *,
        dtype: torch.dtype | None,
        models: tuple[str, ...],
        on_rows: Callable[[int], None],
    ) -> None:
        self._similarity = similarity
        self._dtype = dtype
        self._models = models
        self._on_rows = on_rows
        self._expected = one_item(similarity)

    def check(self, items: Items, ids: object, metadata: object, *, first_id: int | None) -> Iterator[CheckedBatch]:
        """Check what was given: arrays at once, before any work; batches as they come.

        Ids that are left out count on from `first_id`; where that is None they must be given.
        """
        if isinstance(items, ItemBatch):
            items = [items]
        if not _is_batches(items):
            batches = [self._checked(ItemBatch(items, ids, metadata), first_id)]
            return iter(batches)
        if ids is not None or metadata is not None:
            raise InvalidInputError("items come in batches, which bring their ids and metadata themselves.")
        return self._check_batches(items, first_id)  # type: ignore[arg-type]  # which _is_batches has seen to

    def build(self, batches: Iterable[CheckedBatch], *, rows_per_segment: int | None) -> Iterator[Segment]:
        """Compute the item side, and give a segment whenever there are enough rows for one."""
        for batch in batches if rows_per_segment is None else _regroup(batches, rows_per_segment):
            yield Segment.build(batch.ids, self._parts(batch), batch.metadata)

    @property
    def rows_per_segment(self) -> int:
        """How many rows have room in the memory that a build may take."""
        components, gate = self._expected.components, self._expected.gate
        num_values = components[0].numel() + components.shape[-1] + (0 if gate is None else gate[0].numel())
        return max(1, SEGMENT_BYTES // (4 * num_values))

    def _check_batches(self, batches: Iterable[object], first_id: int | None) -> Iterator[CheckedBatch]:
        has_ids = None
        for number, batch in enumerate(batches):
            if not isinstance(batch, ItemBatch):
                raise InvalidInputError(f"batch {number} of items is a {type(batch).__name__}; give ItemBatch objects.")
            if has_ids is not None and has_ids != (batch.ids is not None):
                raise InvalidInputError(f"batch {number} of items differs in having ids; give them in all or in none.")
            has_ids = batch.ids is not None
            try:
                checked = self._checked(batch, first_id)
            except InvalidInputError as error:
                raise InvalidInputError(f"batch {number} of items: {error}") from error
            first_id = None if first_id is None else first_id + len(checked)
            yield checked
        if has_ids is None:
            raise InvalidInputError("items brought no batch; give at least 1 item.")

    def _checked(self, batch: ItemBatch, first_id: int | None) -> CheckedBatch:
        items: Tensor | ItemParts
        if isinstance(batch.items, ItemParts):
            check_parts(batch.items, self._expected, name="item", models=self._models)
            items = batch.items
        else:
            items = as_embeddings(batch.items, name="items", shape=self._similarity.item_shape)  # type: ignore[arg-type]
        if len(items) == 0:
            raise InvalidInputError("items holds 0 rows; give at least 1 item.")
        ids = _next_ids(first_id, len(items)) if batch.ids is None else as_ids(batch.ids, count=len(items))  # type: ignore[arg-type]
        metadata = None if batch.metadata is None else as_metadata(batch.metadata, count=len(items))
        return CheckedBatch(items, ids, metadata)

    def _parts(self, batch: CheckedBatch) -> ItemParts:
        like = self._expected.components
        if isinstance(batch.items, ItemParts):
            given = batch.items
            gate = None if given.gate is None else given.gate.detach().to(like, copy=True)
            parts = ItemParts(given.components.detach().to(like, copy=True), gate)
            self._on_rows(len(parts))
        else:
            parts = compute_item_parts(self._similarity, batch.items, on_rows=self._on_rows)
        if self._dtype is not None:
            parts = parts.to(self._dtype)
        for name, part in (("item components", parts.components), ("item gate", parts.gate)):
            if part is not None:
                check_finite(part, name=name)
        return ItemParts(parts.components, parts.gate)


class SeenIds:
    """Ids of segments that are there already, to find repeats in those that come."""

    def __init__(self, segments: Iterable[Segment], remedy: str) -> None:
        self._ids = [segment.ids[segment.live_rows] for segment in segments]
        self._remedy = remedy

    def add(self, segment: Segment) -> Segment:
        """Check that none of its ids was there, or stands twice, and give the segment back."""
        repeated = segment.ids[1:][segment.ids[1:] == segment.ids[:-1]]  # (r,); ids are ascending
        if len(repeated):
            raise InvalidInputError(
                f"id {int(repeated[0])} is in more than one batch ({len(repeated)} repeats in all); "
                "give every item its own id."
            )
        for known in self._ids:
            is_known = torch.isin(segment.ids, known)  # (n,)
            if bool(is_known.any()):
                first = int(segment.ids[is_known][0])
                raise InvalidInputError(
                    f"id {first} is there already ({int(is_known.sum())} of the ids given are); {self._remedy}."
                )
        self._ids.append(segment.ids)
        return segment


def _next_ids(first_id: int | None, count: int) -> Tensor:
    if first_id is None:
        raise InvalidInputError("ids was left out; say which items to replace, or use add.")
    if first_id + count > LARGEST_ID:
        raise InvalidInputError(f"no ids are left after {first_id - 1}; give ids.")
    return torch.arange(first_id, first_id + count)  # (n,)


def _is_batches(items: object) -> bool:
    if isinstance(items, Iterator):
        return True
    return isinstance(items, (list, tuple)) and bool(items) and isinstance(items[0], ItemBatch)


def _regroup(batches: Iterable[CheckedBatch], size: int) -> Iterator[CheckedBatch]:
    """Cut and join batches so that each but the last has `size` rows."""
    waiting: list[CheckedBatch] = []
    for batch in batches:
        first = 0
        while first < len(batch):
            taken = batch[first : first + size - sum(map(len, waiting))]
            waiting.append(taken)
            first += len(taken)
            if sum(map(len, waiting)) == size:
                yield _joined(waiting)
                waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[CheckedBatch]) -> CheckedBatch:
    if len(batches) == 1:
        return batches[0]
    for batch in batches[1:]:
        check_columns(batch.metadata, batches[0].metadata)
    frame = stack([batch.metadata.frame for batch in batches if batch.metadata is not None])
    metadata = None if frame is None else Metadata(frame)
    parts = [batch.items for batch in batches if isinstance(batch.items, ItemParts)]
    tensors = [batch.items for batch in batches if isinstance(batch.items, Tensor)]
    if parts and tensors:
        raise InvalidInputError("some batches hold embeddings and some hold item parts; give one kind.")
    items: Tensor | ItemParts
    if parts:
        gates = [part.gate for part in parts if part.gate is not None]
        items = ItemParts(torch.cat([part.components for part in parts]), torch.cat(gates) if gates else None)
    else:
        items = torch.cat(tensors)
    return CheckedBatch(items, torch.cat([batch.ids for batch in batches]), metadata)


def _zeros(similarity: Similarity, shape: tuple[int, ...]) -> Tensor:
    like = next(iter(similarity.parameters()), torch.empty(0))
    return like.new_zeros(1, *shape)
