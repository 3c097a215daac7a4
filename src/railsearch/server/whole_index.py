"""An index in one folder, as the server asks it."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.results import SearchResult
from railsearch.foundation.safe_files import read_inside
from railsearch.index import Allow, Engine, Exclude, Index, Strategy, TuningReport, serving
from railsearch.index.keys import to_integers
from railsearch.index.storage.manifest import Manifest
from railsearch.index.storage.places import current_version, manifest_file
from railsearch.index.tuned import TunedStrategy
from railsearch.server.opened import Opened
from railsearch.similarity import QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame, Schema


class WholeIndex(Opened[Index]):
    """One version of an index folder; for its calls see `Searched`."""

    @classmethod
    def open(cls, path: Path, *, engine: Engine | None = None) -> "WholeIndex":
        """Open the newest version of a folder."""
        return cls(Index.open(path, engine=engine))

    @property
    def similarity(self) -> Similarity:
        """The similarity that searches."""
        return self.index.contents.corpus.similarity

    @property
    def like(self) -> Tensor:
        """An empty tensor with the precision and device of scores."""
        return self.index.contents.corpus.like

    @property
    def engine(self) -> Engine:
        """The engine of the first stage."""
        return self.index.contents.corpus.engine

    def item_vectors(self, ids: Tensor) -> Tensor:
        """Return vectors of items."""
        return serving.item_vectors(self.index, ids)

    def query_parts(self, queries: Tensor, user_ids: Tensor | None) -> QueryParts:
        """Return the query side."""
        return serving.query_parts(self.index, queries, user_ids=user_ids)

    def tuned_strategies(self) -> dict[str, TunedStrategy]:
        """Return the tuned strategies."""
        return serving.tuned_strategies(self.index)

    def metadata_schema(self) -> "Schema":
        """Return the names and types of the metadata columns."""
        return serving.metadata_schema(self.index)

    def describe_items(self, ids: ArrayLike) -> "DataFrame":
        """Return a table of items."""
        return serving.describe_items(self.index, ids)

    def find_text(self, text: str, *, limit: int, column: str | None) -> "DataFrame":
        """Return the first items that contain a text."""
        return serving.find_text(self.index, text, limit=limit, column=column)

    def describe(self) -> dict[str, object]:
        """Return the facts that a client is told."""
        return {**self.index.describe(), "engine": self.index.contents.corpus.engine.key, "shards": None}

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
        """Find the k best items of each query; nothing can be missing, so `partial` does not matter."""
        return self.index.search(parts, k, strategy, exclude, allow, pad=pad)

    def to_integers(self, ids: ArrayLike, *, name: str) -> Tensor:
        """Return ids as the integers inside."""
        return to_integers(ids, self.index.contents.corpus.segments, name=name)

    def tuned_strategy(self, k: int) -> TunedStrategy | None:
        """Return the strategy of a search that names none."""
        return serving.tuned_strategy(self.index, k)

    def warm_up(self) -> None:
        """Open all tables and search once."""
        serving.warm_up(self.index)

    def newest(self) -> "WholeIndex":
        """Return the newest version beside this one."""
        return WholeIndex(serving.reopen(self.index))

    def is_same(self, other: object) -> bool:
        """Return whether two versions are the same."""
        return isinstance(other, WholeIndex) and serving.is_same_version(self.index, other.index)

    def is_behind(self) -> bool:
        """Return whether the folder has another version."""
        index, path = self.index, self.index.path
        assert path is not None
        version = current_version(path)
        if version != index.version:
            return True
        name = manifest_file(version)  # another index at this path may have reached the same number
        return Manifest.decode(read_inside(path, name), path / name) != index.contents.manifest

    def measure_strategies(
        self, queries: Tensor, k: int, *, target_recall: float, confidence: float, user_ids: Tensor | None
    ) -> TuningReport:
        """Find the cheapest strategy that reaches a recall."""
        return serving.measure_strategies(
            self.index, queries, k, target_recall=target_recall, confidence=confidence, user_ids=user_ids
        )

    def remember_choice(self, report: TuningReport, *, version: int) -> None:
        """Commit the strategy that was chosen on a version."""
        serving.remember_choice(self.index, report, version=version)

    def close(self) -> None:
        """Release nothing: the files are closed after the last search in them."""
