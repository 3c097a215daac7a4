"""A split index, as the server asks it: its shards are in this process or in actors of Ray."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.distributed import ShardedIndex, serving
from railsearch.distributed.layout import SHARDS_FILE
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.results import SearchResult
from railsearch.index import Allow, Engine, Exclude, Strategy, TuningReport
from railsearch.index.tuned import TunedStrategy, tuned_for
from railsearch.server.opened import Opened
from railsearch.similarity import QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame, Schema

NOT_TUNED = "a split index cannot be tuned; tune the index before it is split."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """Where the shards of split indexes live."""

    uses_ray: bool = False
    replicas: int = 1
    address: str | None = None
    """HOST:PORT of the head of a Ray cluster, or "auto"."""


def is_split(path: Path) -> bool:
    """Return whether a folder holds a split index."""
    return (path / SHARDS_FILE).is_file()


class SplitIndex(Opened[ShardedIndex]):
    """One snapshot of a split index; for its calls see `Searched`."""

    def __init__(self, index: ShardedIndex) -> None:
        super().__init__(index)
        self._schema: Schema | None = None

    @classmethod
    def open(cls, path: Path, *, settings: ShardSettings, engine: Engine | None = None) -> "SplitIndex":
        """Open the newest snapshot, and start its workers."""
        workers = "ray" if settings.uses_ray else "local"
        opened = ShardedIndex.open(
            path, workers=workers, replicas=settings.replicas, address=settings.address, engine=engine
        )
        return cls(opened)

    @property
    def similarity(self) -> Similarity:
        """The similarity that searches."""
        return self.index.query_side.similarity

    @property
    def like(self) -> Tensor:
        """An empty tensor with the precision and device of scores."""
        return self.index.query_side.like

    @property
    def engine(self) -> Engine:
        """The engine of the first stage."""
        return self.index.engine

    def item_vectors(self, ids: Tensor) -> Tensor:
        """Return vectors of items, from the shards that hold them."""
        return serving.item_vectors(self.index, ids)

    def query_parts(self, queries: Tensor, user_ids: Tensor | None) -> QueryParts:
        """Return the query side."""
        return serving.query_parts(self.index, queries, user_ids=user_ids)

    def tuned_strategies(self) -> dict[str, TunedStrategy]:
        """Return the tuned strategies."""
        return serving.tuned_strategies(self.index)

    def metadata_schema(self) -> "Schema":
        """Return the names and types of the metadata columns."""
        if self._schema is None:  # a version never changes, and the event loop may ask
            self._schema = serving.metadata_schema(self.index)
        return self._schema

    def describe_items(self, ids: ArrayLike) -> "DataFrame":
        """Return a table of items."""
        return serving.describe_items(self.index, ids)

    def find_text(self, text: str, *, limit: int, column: str | None) -> "DataFrame":
        """Return the first items that contain a text."""
        return serving.find_text(self.index, text, limit=limit, column=column)

    def describe(self) -> dict[str, object]:
        """Return the facts that a client is told."""
        facts = self.index.describe()
        return {**facts, "shards": self.index.num_shards, "kernel": None, "tables": []}

    def search(
        self,
        parts: QueryParts,
        k: int,
        strategy: Strategy,
        exclude: Exclude,
        allow: Allow,
        *,
        pad: bool,
        partial: str,
    ) -> SearchResult:
        """Find the k best items of each query."""
        return self.index.search(parts, k, strategy, exclude, allow, pad=pad, partial=partial)

    def to_integers(self, ids: ArrayLike, *, name: str) -> Tensor:
        """Return ids as the integers inside."""
        return self.index.find(ids) if self.index.has_keys else torch.as_tensor(ids, dtype=torch.int64)

    def tuned_strategy(self, k: int) -> TunedStrategy | None:
        """Return the strategy that was tuned before the split."""
        return self.tuned_strategies().get(tuned_for(k, self.index.engine))

    def warm_up(self) -> None:
        """Search once, in all shards, and learn the columns."""
        self.metadata_schema()
        if len(self.index):
            shape = self.similarity.query_shape
            query = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
            self.index.search(query, 1, partial="allow")

    def newest(self) -> "SplitIndex":
        """Return the newest snapshot beside this one; both have the same workers."""
        return SplitIndex(serving.reopen(self.index))

    def is_same(self, other: object) -> bool:
        """Return whether two snapshots are the same."""
        return isinstance(other, SplitIndex) and self.index.opened == other.index.opened

    def is_behind(self) -> bool:
        """Return whether the folder has another snapshot."""
        return serving.is_behind(self.index)

    def measure_strategies(
        self, queries: Tensor, k: int, *, target_recall: float, confidence: float, user_ids: Tensor | None
    ) -> TuningReport:
        """Refuse: a strategy is tuned before the split."""
        raise InvalidInputError(NOT_TUNED)

    def remember_choice(self, report: TuningReport, *, version: int) -> None:
        """Refuse: a strategy is tuned before the split."""
        raise InvalidInputError(NOT_TUNED)

    def close(self) -> None:
        """End the workers."""
        self.index.close()
