"""Build segments from items: check the items, and compute their side of the similarity."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import FingerprintError, InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable, as_embeddings, check_finite
from railsearch.foundation.results import ItemBatch, ItemBatches
from railsearch.index.memory import check_build
from railsearch.index.metadata import Metadata, as_metadata, fit_columns, stack, with_keys
from railsearch.index.numbering import Numbering
from railsearch.index.segment import Segment
from railsearch.kernels import compute_item_parts, plain_arithmetic
from railsearch.similarity import ItemParts, QueryParts, Similarity
from railsearch.similarity.fingerprints import leave_unnamed
from railsearch.similarity.parts import IN_TRAINING

SEGMENT_BYTES = 2**28
"""Bytes that a large build holds in memory before they are written as a segment."""

SMALLEST_FACTOR = 1e-18
"""The product of two smaller values underflows in fp32."""

Items = TypeAliasType(
    "Items", "ArrayLike | ItemParts | ItemBatch | ItemBatches | Iterator[ItemBatch] | Sequence[ItemBatch]"
)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The item side of a few items, in its own memory: later changes to the batch do not reach it."""

    ids: Tensor  # (n,)
    parts: ItemParts
    metadata: Metadata | None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice) -> "Piece":
        metadata = None if self.metadata is None else Metadata(self.metadata.frame[rows])
        return Piece(self.ids[rows], self.parts[rows], metadata)


def prepare_similarity(similarity: Similarity) -> Similarity:
    """Return a copy that scores and does not train, in the precision that scores are computed in.

    Only the index may reach it: the parts that it computes carry no fingerprint.
    """
    similarity = copy.deepcopy(similarity).train(False)
    for parameter in similarity.parameters():
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
    leave_unnamed(similarity)
    return similarity


@plain_arithmetic()
def one_query(similarity: Similarity) -> QueryParts:
    """Return the parts of one query of zeros, which show the shapes and types of query parts."""
    return similarity.query_parts(_zeros(similarity, similarity.query_shape))


@plain_arithmetic()
def one_item(similarity: Similarity) -> ItemParts:
    """Return the parts of one item of zeros, which show the shapes and types of item parts."""
    return similarity.item_parts(_zeros(similarity, similarity.item_shape))


def check_parts(
    parts: QueryParts | ItemParts, expected: QueryParts | ItemParts, *, name: str, models: tuple[str, ...]
) -> None:
    """Check that ready parts are of this model, have its shapes, and hold only finite values of a sane size."""
    if parts.model == IN_TRAINING:
        raise InvalidInputError(
            f"the {name} parts were computed in training mode, when weights change and dropout is on; call "
            "similarity.eval() first, or compute the parts with index.similarity."
        )
    if parts.model is not None and models and parts.model not in models:
        raise FingerprintError(
            f"the {name} parts were computed by model {parts.model} but this index was built with {models[0]}; "
            "compute the parts with index.similarity, or build the index again."
        )
    for kind, part, wanted in (
        ("components", parts.components, expected.components),
        ("gate", parts.gate, expected.gate),
    ):
        if (part is None) != (wanted is None):
            found, needed = ("none", "a") if part is None else ("one", "no")
            raise InvalidInputError(
                f"this similarity has {needed} {name} gate but the {name} parts have {found}; "
                "compute the parts with this similarity."
            )
        if part is not None and wanted is not None:
            as_embeddings(part, name=f"{name} {kind}", shape=tuple(wanted.shape[1:]))
            if len(part) != len(parts):
                raise InvalidInputError(
                    f"{name} gate has {len(part)} rows but its components have {len(parts)}; take both from one call."
                )


def count_items(items: object) -> int | None:
    """Return the number of items, if it is known in advance."""
    if isinstance(items, ItemBatch):
        return count_items(items.items)
    if isinstance(items, ItemBatches):
        return items.num_items
    if isinstance(items, (list, tuple)) and items and isinstance(items[0], ItemBatch):
        return None
    return len(items) if isinstance(items, Sized) else None


class SegmentBuilder:
    """A builder of segments that holds no more in memory than one segment and one batch."""

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

    @property
    def rows_per_segment(self) -> int:
        """The number of rows that fit into the memory of a build."""
        components, gate = self._expected.components, self._expected.gate
        num_values = components[0].numel() + components.shape[-1] + (0 if gate is None else gate[0].numel())
        return max(1, SEGMENT_BYTES // (4 * num_values))

    def check_memory(self, num_items: int | None, *, is_in_memory: bool) -> None:
        """Refuse to build an index that needs more memory than there is, as far as the number of items is known."""
        size = None if is_in_memory else self.rows_per_segment
        check_build(self._expected, num_items, dtype=self._dtype, rows_per_segment=size)

    def build(
        self,
        items: Items,
        ids: ArrayLike | None,
        metadata: ArrowTable | None,
        *,
        rows_per_segment: int | None,
        numbering: Numbering,
    ) -> Iterator[Segment]:
        """Return an iterator of segments of `rows_per_segment` rows, or of a single one if that is None.

        Arrays are checked immediately, batches as they arrive.
        """
        if isinstance(items, ItemBatch):
            items, ids, metadata = items.items, items.ids, items.metadata  # type: ignore[assignment]
        if is_batches(items):
            if ids is not None or metadata is not None:
                raise InvalidInputError(
                    "items come in batches but ids or metadata was given too; put them into the batches."
                )
            batches = self._check_batches(items, numbering)  # type: ignore[arg-type]  # is_batches checked it
        else:
            batches = iter([self._checked(ItemBatch(items, ids, metadata), numbering)])
        pieces = self._pieces(batches, rows_per_segment)
        return (Segment.build(piece.ids, piece.parts, piece.metadata) for piece in regroup(pieces, rows_per_segment))

    def _check_batches(self, batches: Iterable[object], numbering: Numbering) -> Iterator["_Checked"]:
        has_ids, first_row = None, 0
        for number, batch in enumerate(batches):
            if not isinstance(batch, ItemBatch):
                raise InvalidInputError(f"batch {number} of items is a {type(batch).__name__}; give ItemBatch objects.")
            if has_ids is not None and has_ids != (batch.ids is not None):
                raise InvalidInputError(f"batch {number} of items differs in having ids; give ids in all or in none.")
            has_ids = batch.ids is not None
            try:
                checked = self._checked(batch, numbering)
            except InvalidInputError as error:
                raise InvalidInputError(f"batch {number} of items, from row {first_row} on: {error}") from error
            first_row += len(checked.ids)
            yield checked
        if has_ids is None:
            raise InvalidInputError("items holds no batch; give at least 1 item.")

    def _checked(self, batch: ItemBatch, numbering: Numbering) -> "_Checked":
        items: Tensor | ItemParts
        if isinstance(batch.items, ItemParts):
            check_parts(batch.items, self._expected, name="item", models=self._models)
            items = batch.items
        else:
            items = as_embeddings(batch.items, name="items", shape=self._similarity.item_shape)  # type: ignore[arg-type]
        if len(items) == 0:
            raise InvalidInputError("items holds 0 rows; give at least 1 item.")
        numbered = numbering.number(batch.ids, len(items))
        metadata = None if batch.metadata is None else as_metadata(batch.metadata, count=len(items))
        return _Checked(items, numbered.ids, metadata if numbered.keys is None else with_keys(metadata, numbered.keys))

    def _pieces(self, batches: Iterable["_Checked"], rows_per_segment: int | None) -> Iterator[Piece]:
        """Compute the item side of batches as they arrive; all must have the columns of the first."""
        known: Metadata | None = None
        for number, batch in enumerate(batches):
            if number == 0:
                known = batch.metadata
            metadata = fit_columns(batch.metadata, known)
            step = len(batch.ids) if rows_per_segment is None else rows_per_segment
            for first in range(0, len(batch.ids), step):
                rows = slice(first, first + step)
                own = None if metadata is None else Metadata(metadata.frame[rows])
                yield Piece(batch.ids[rows], self._parts(batch.items[rows]), own)

    def _parts(self, items: Tensor | ItemParts) -> ItemParts:
        like = self._expected.components
        if isinstance(items, ItemParts):
            gate = None if items.gate is None else items.gate.detach().to(like, copy=True)
            parts = ItemParts(items.components.detach().to(like, copy=True), gate)
            self._on_rows(len(parts))
        else:
            parts = compute_item_parts(self._similarity, items, on_rows=self._on_rows)
            check_not_lost(items, parts.components, name="items")
        if self._dtype is not None:
            parts, exact = parts.to(self._dtype), parts
            _check_storage(parts, exact)
        for name, part in (("item components", parts.components), ("item gate", parts.gate)):
            if part is not None:
                check_finite(part, name=name)
        return ItemParts(parts.components, parts.gate)


def check_not_lost(embeddings: Tensor, components: Tensor, *, name: str) -> None:
    """Refuse embeddings that are so small that all their components underflow to zero: every score would be a tie."""
    largest = torch.linalg.vector_norm(embeddings.flatten(1), ord=torch.inf, dim=1)  # (n,)
    if not len(largest) or float(largest.min()) >= SMALLEST_FACTOR:
        return
    is_tiny = (largest > 0) & (largest < SMALLEST_FACTOR)  # (n,)
    is_lost = is_tiny & (components == 0).flatten(1).all(dim=1).to(is_tiny.device)  # (n,)
    if bool(is_lost.any()):
        raise InvalidInputError(
            f"{name} has a row with no value above {float(largest[is_lost][0]):.2g}, so its components underflow to "
            "zero in fp32; scale the embeddings up, to a length near 1."
        )


def _check_storage(stored: ItemParts, exact: ItemParts) -> None:
    """Refuse items whose components are all rounded to zero by the precision of the index."""
    is_zero = (stored.components == 0).flatten(1).all(dim=1)  # (n,)
    is_lost = is_zero & (exact.components != 0).flatten(1).any(dim=1)  # (n,)
    if bool(is_lost.any()):
        row, dtype = int(is_lost.nonzero()[0]), str(stored.components.dtype).removeprefix("torch.")
        raise InvalidInputError(
            f"the components of row {row}, no larger than {float(exact.components[row].abs().max()):.2g}, underflow to "
            f"zero in {dtype}; scale the embeddings up, or build with precision='fp32'."
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Checked:
    """Items, ids and metadata that fit together."""

    items: Tensor | ItemParts
    ids: Tensor  # (n,)
    metadata: Metadata | None


def is_batches(items: object) -> bool:
    """Return whether items come in batches."""
    if isinstance(items, (Iterator, ItemBatches)):
        return True
    return isinstance(items, (list, tuple)) and bool(items) and isinstance(items[0], ItemBatch)


def regroup(pieces: Iterable[Piece], size: int | None) -> Iterator[Piece]:
    """Cut and join pieces so that each has `size` rows, except for the last; without a size, join all into one."""
    waiting: list[Piece] = []
    num_waiting = 0
    for piece in pieces:
        first = 0
        while first < len(piece):
            taken = piece if size is None else piece[first : first + size - num_waiting]
            waiting.append(taken)
            num_waiting += len(taken)
            first += len(taken)
            if num_waiting == size:
                yield _joined(waiting)
                waiting, num_waiting = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    frame = stack([piece.metadata.frame for piece in pieces if piece.metadata is not None])
    gates = [piece.parts.gate for piece in pieces if piece.parts.gate is not None]
    parts = ItemParts(torch.cat([piece.parts.components for piece in pieces]), torch.cat(gates) if gates else None)
    return Piece(torch.cat([piece.ids for piece in pieces]), parts, None if frame is None else Metadata(frame))


def _zeros(similarity: Similarity, shape: tuple[int, ...]) -> Tensor:
    like = next(iter(similarity.parameters()), torch.empty(0))
    return like.new_zeros(1, *shape)
