"""Batches of items on their way to shards: checked, numbered across all shards, and cut up by shard."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from railsearch.distributed.assignment import check_column, shards_of_ids, shards_of_values
from railsearch.distributed.locating import take
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable, as_embeddings, as_ids
from railsearch.foundation.results import ItemBatch
from railsearch.index.building import Items, is_batches
from railsearch.index.keys import as_keys
from railsearch.index.metadata import as_metadata
from railsearch.similarity import ItemParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame


def as_batches(items: Items, ids: ArrayLike | None, metadata: ArrowTable | None) -> Iterator[ItemBatch]:
    """Return items in any form that an index takes as an iterator of batches."""
    if isinstance(items, ItemBatch):
        return iter([items])
    if not is_batches(items):
        return iter([ItemBatch(items, ids, metadata)])
    if ids is not None or metadata is not None:
        raise InvalidInputError("items come in batches but ids or metadata was given too; put them into the batches.")
    return iter(items)  # type: ignore[arg-type]  # is_batches checked it


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The items of one batch, checked as far as a split index can without its shards."""

    items: Tensor | ItemParts
    ids: Tensor | list[str] | None
    """Integers or strings; None if they were omitted."""
    frame: "DataFrame | None"

    def __len__(self) -> int:
        return len(self.items)

    @classmethod
    def check(cls, batch: object, similarity: Similarity) -> "Rows":
        """Check a batch; whether its ids are new, and its columns known, only the shards can tell."""
        if not isinstance(batch, ItemBatch):
            raise InvalidInputError(f"a batch of items is a {type(batch).__name__}; give ItemBatch objects.")
        items = batch.items
        if not isinstance(items, ItemParts):
            items = as_embeddings(items, name="items", shape=similarity.item_shape)  # type: ignore[arg-type]
        if not len(items):
            raise InvalidInputError("items holds 0 rows; give at least 1 item.")
        keys = None if batch.ids is None else as_keys(batch.ids, name="ids")
        if keys is not None and len(keys) != len(items):
            raise InvalidInputError(
                f"ids has {len(keys)} strings but there are {len(items)} items; give one id for each item."
            )
        integers = None if batch.ids is None or keys is not None else as_ids(batch.ids, count=len(items))
        frame = None if batch.metadata is None else as_metadata(batch.metadata, count=len(items)).frame
        return cls(items, integers if keys is None else keys, frame)

    def shards(self, ids: Tensor | list[str], num_shards: int, by: str | None) -> Tensor:
        """Return the shard (n,) of each item, whose ids are given."""
        if by is None:
            return shards_of_ids(ids, num_shards)
        check_column(self.frame, by)
        assert self.frame is not None
        return shards_of_values(self.frame[by], num_shards)

    def batch(self, ids: Tensor | list[str], rows: Tensor) -> ItemBatch:
        """Return some rows (m,) as a batch, with their ids."""
        frame = None if self.frame is None else self.frame[rows.numpy()]
        return ItemBatch(self.items[rows], take(ids, rows), frame)
