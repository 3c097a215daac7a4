"""One version of an index as the server asks it, whether it is one folder or split into shards."""

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.results import Explanation, ItemBatch, ItemBatches, SearchResult
from railsearch.index import Allow, Engine, Exclude, ModelSource, Strategy, TuningReport
from railsearch.index.tuned import TunedStrategy
from railsearch.similarity import QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame, Schema


class Searched(Protocol):
    """A version that never changes: changes are made on `newest()`, which is then put in its place."""

    @property
    def version(self) -> int:
        """The number of the version."""
        ...

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity."""
        ...

    @property
    def source(self) -> dict[str, str]:
        """The model that built the index."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the ids are strings."""
        ...

    @property
    def similarity(self) -> Similarity:
        """The similarity that searches; it must not be changed."""
        ...

    @property
    def like(self) -> Tensor:
        """An empty tensor with the precision and device of scores."""
        ...

    def __len__(self) -> int: ...

    def describe(self) -> dict[str, object]:
        """Return the facts that a client is told: items, segments, bytes, precision, kernel, engine and so on."""
        ...

    def query_parts(self, queries: Tensor, user_ids: Tensor | None) -> QueryParts:
        """Return the query side; that of one query does not depend on the others."""
        ...

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
        ...

    def explain(self, query: ArrayLike, item_id: int | str, *, user_id: int | None = None) -> Explanation:
        """Return the component scores and gate weights of one query and one item."""
        ...

    @property
    def engine(self) -> Engine:
        """The engine of the first stage."""
        ...

    def similar_items(
        self, ids: ArrayLike, k: int, *, exclude: ArrayLike | None, allow: Allow, pad: bool
    ) -> SearchResult:
        """Find the k most similar items of each item."""
        ...

    def item_vectors(self, ids: Tensor) -> Tensor:
        """Return vectors (n, D) of items by integer id; a dot product is the similarity of two of them."""
        ...

    def find(self, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,); -1 for those that are not there."""
        ...

    def to_integers(self, ids: ArrayLike, *, name: str) -> Tensor:
        """Return ids as the integers inside; a string that no item has becomes -1."""
        ...

    def tuned_strategies(self) -> dict[str, TunedStrategy]:
        """Return the tuned strategies; the name tells the k and the engine."""
        ...

    def tuned_strategy(self, k: int) -> TunedStrategy | None:
        """Return the strategy of a search for k that names none; None for brute force."""
        ...

    def metadata_schema(self) -> "Schema":
        """Return the names and types of the metadata columns."""
        ...

    def describe_items(self, ids: ArrayLike) -> "DataFrame":
        """Return a table of items: the column id, and their metadata."""
        ...

    def find_text(self, text: str, *, limit: int, column: str | None) -> "DataFrame":
        """Return the first items that contain a text."""
        ...

    def check_model(self, source: ModelSource) -> None:
        """Refuse an index whose items another model has encoded."""
        ...

    def warm_up(self) -> None:
        """Search once, so that the first query does not wait."""
        ...

    def newest(self) -> "Searched":
        """Return the newest version beside this one."""
        ...

    def is_same(self, other: object) -> bool:
        """Return whether two versions are the same."""
        ...

    def is_behind(self) -> bool:
        """Return whether the folder has another version."""
        ...

    def put(self, items: ItemBatch | ItemBatches, *, replaces: bool) -> None:
        """Add items, or replace those with the same ids."""
        ...

    def remove(self, ids: ArrayLike, *, missing_ok: bool) -> None:
        """Remove items."""
        ...

    def compact(self) -> None:
        """Write all items again, without the removed ones."""
        ...

    def measure_strategies(
        self, queries: Tensor, k: int, *, target_recall: float, confidence: float, user_ids: Tensor | None
    ) -> TuningReport:
        """Find the cheapest strategy that reaches a recall; others may write meanwhile."""
        ...

    def remember_choice(self, report: TuningReport, *, version: int) -> None:
        """Commit the strategy that was chosen on a version."""
        ...

    def close(self) -> None:
        """Release what the version holds."""
        ...
