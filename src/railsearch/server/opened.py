"""The calls that an index in one folder and a split index answer in the same way, as the server asks them."""

from typing import Generic, TypeVar

from torch import Tensor

from railsearch.distributed import ShardedIndex
from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.results import Explanation, ItemBatch, ItemBatches, SearchResult
from railsearch.index import Allow, Index, ModelSource

OpenIndex = TypeVar("OpenIndex", Index, ShardedIndex)


class Opened(Generic[OpenIndex]):
    """A part of `Searched`, for either kind of index."""

    def __init__(self, index: OpenIndex) -> None:
        self.index: OpenIndex = index

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.index.version

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity."""
        return self.index.fingerprint

    @property
    def source(self) -> dict[str, str]:
        """The model that built the index."""
        return self.index.source

    @property
    def has_keys(self) -> bool:
        """Whether the ids are strings."""
        return self.index.has_keys

    def __len__(self) -> int:
        return len(self.index)

    def explain(self, query: ArrayLike, item_id: int | str, *, user_id: int | None = None) -> Explanation:
        """Return the component scores and gate weights of one query and one item."""
        return self.index.explain(query, item_id, user_id=user_id)

    def similar_items(
        self, ids: ArrayLike, k: int, *, exclude: ArrayLike | None, allow: Allow, pad: bool
    ) -> SearchResult:
        """Find the k most similar items of each item."""
        return self.index.similar_items(ids, k, exclude=exclude, allow=allow, pad=pad)

    def find(self, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,)."""
        return self.index.find(ids)

    def check_model(self, source: ModelSource) -> None:
        """Refuse an index whose items another model has encoded."""
        source.check(self.index)

    def put(self, items: ItemBatch | ItemBatches, *, replaces: bool) -> None:
        """Add items, or replace those with the same ids."""
        (self.index.upsert if replaces else self.index.add)(items, show_progress=False)

    def remove(self, ids: ArrayLike, *, missing_ok: bool) -> None:
        """Remove items."""
        self.index.remove(ids, missing_ok=missing_ok)

    def compact(self) -> None:
        """Write all items again, without the removed ones."""
        self.index.compact()
