"""One shard in one process: the versions of its index folder that requests name, and the calls on them."""

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.distributed.snapshots import find_snapshots
from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.inputs import ArrayLike
from railsearch.foundation.results import NO_ITEM, Explanation, ItemBatch
from railsearch.index import Allow, Engine, Exclude, Index, Strategy, searching, similar
from railsearch.index.building import check_parts
from railsearch.index.corpus import Corpus
from railsearch.index.filters import make_filter
from railsearch.index.matching import matched_components
from railsearch.index.serving import find_text, open_version
from railsearch.kernels import NO_ROW, RowFilter, plain_arithmetic
from railsearch.similarity import QueryParts

if TYPE_CHECKING:
    from polars import DataFrame

OPEN_VERSIONS = 3
"""Versions that a shard keeps open: those that were asked for last."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardAnswer:
    """The best items of one shard for each query, best first, and the ceiling of those that it did not score."""

    ids: Tensor  # (B, <= K) int64, -1 in a place that has no item
    scores: Tensor  # (B, <= K) float32, minus infinity in such a place
    ceiling: Tensor  # (B,) float32
    num_scored: Tensor  # (B,) int64

    def without_ceiling(self) -> "ShardAnswer":
        """Return the same items, if another answer bounds those that were not scored."""
        return dataclasses.replace(self, ceiling=torch.full_like(self.ceiling, -torch.inf))


@dataclass(frozen=True, slots=True)
class ShardState:
    """A version of a shard after a change, or as it was found."""

    version: int
    num_items: int
    largest_id: int
    """The greatest integer id of a row, live or removed; -1 if there is none."""


class Shard:
    """One shard of a split index. Every request names the version that it means, so replicas never mix versions."""

    def __init__(
        self,
        folder: Path,
        *,
        birth: str,
        engine: Engine | None = None,
        kernel: str | None = None,
        verify: str = "full",
    ) -> None:
        """Store where the shard is, and the id of the index that must be there."""
        self._folder = folder
        self._birth = birth
        self._engine = engine
        self._kernel = kernel
        self._verify = verify
        self._opened: OrderedDict[int, Index] = OrderedDict()
        self._opening = threading.Lock()

    def open(self, version: int) -> ShardState:
        """Open a version, and check every byte of it that was not checked before."""
        return _state(self._at(version))

    def describe(self, version: int) -> dict[str, int | str | list[str] | None]:
        """Return the summary of the index at a version."""
        return self._at(version).describe()

    def ids(self, version: int) -> Tensor:
        """Return the integer ids (m,) of all items, ascending."""
        return self._at(version).ids  # (m,)

    def find(self, version: int, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,), which may be strings; -1 for those that are not here."""
        return self._at(version).find(ids)  # (n,)

    def items(self, version: int, ids: Tensor) -> "DataFrame":
        """Return the metadata of integer ids (n,) of items that are here, string ids among its columns."""
        return searching.metadata_of(self._at(version).contents.corpus, ids)

    def columns(self, version: int, names: Sequence[str]) -> "DataFrame":
        """Return the named columns of the metadata, in the order of `ids`; all of them if it has none of those."""
        corpus = self._at(version).contents.corpus
        frame = corpus.frame
        assert frame is not None
        known = [name for name in frame.columns if name in set(names)]
        return frame.select(known or frame.columns)[corpus.rows.cpu().numpy()]

    def find_text(self, version: int, text: str, limit: int, column: str | None) -> "tuple[Tensor, DataFrame]":
        """Return the integer ids (n,) and the table of the first items that contain a text; see `serving.find_text`."""
        index = self._at(version)
        found = find_text(index, text, limit=limit, column=column)
        return index.find(found["id"].to_list()), found

    def explain(self, version: int, query: ArrayLike, item_id: int | str, user_id: int | None) -> Explanation:
        """Return the component scores and gate weights behind the score of an item that is here."""
        return self._at(version).explain(query, item_id, user_id=user_id)

    @plain_arithmetic()
    def matched(self, version: int, components: Tensor, gate: Tensor | None, queries: Tensor, ids: Tensor) -> Tensor:
        """Return the item component (n,) that matched, for rows of queries (n,) and integer ids (n,) of items here."""
        corpus = self._at(version).contents.corpus
        parts = searching.as_query_parts(corpus.similarity, corpus.like, QueryParts(components, gate), None)
        return matched_components(corpus, parts, queries, ids)

    @plain_arithmetic()
    def search(
        self,
        version: int,
        components: Tensor,
        gate: Tensor | None,
        *,
        k: int,
        strategy: Strategy,
        exclude: Exclude = None,
        allow: Allow = None,
        floor: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> ShardAnswer:
        """Find the k best items of each query, or as many as there are.

        Args:
            version: the version to search.
            components: query components (B, Pq, d).
            gate: the query side of the gate (B, P), if the similarity has one.
            k: the number of items to return.
            strategy: how to search.
            exclude: as in `Index.search`.
            allow: as in `Index.search`; a mask has one value for each of `ids`.
            floor: scores (B,) that k items of all shards reach: items below them need not be found. Only for a
                `FloorStrategy`.
            seen: integer ids (B, n) of items that were returned before, or -1: they are not scored again.
        """
        contents = self._at(version).contents
        corpus = contents.corpus
        parts = QueryParts(components, gate)
        check_parts(parts, contents.query_form, name="query", models=contents.models)
        row_filter = make_filter(corpus, exclude, allow, num_queries=len(parts), k=k, pad=True)
        own_k = min(k, len(corpus.ids))
        if own_k == 0 or len(parts) == 0:
            return _empty_answer(components)
        if seen is not None:
            row_filter = (RowFilter.nothing(device=corpus.like.device) if row_filter is None else row_filter).plus(
                _rows_of(corpus, seen)
            )
        found = searching.find(corpus, parts, own_k, strategy, row_filter, floor=floor)
        return ShardAnswer(
            ids=searching.found_ids(corpus, found),
            scores=found.scores,
            ceiling=found.ceiling,
            num_scored=found.num_scored,
        )

    def vectors(self, version: int, ids: Tensor) -> Tensor:
        """Return the components (n, Px * d) of items that are here, by integer id; see `similar.vectors_of`."""
        return similar.vectors_of(self._at(version).contents.corpus, ids)

    @plain_arithmetic()
    def similar(self, version: int, vectors: Tensor, *, k: int, exclude: Sequence[Tensor], allow: Allow) -> ShardAnswer:
        """Find the k items that are most similar to each of some vectors, or as many as there are.

        Args:
            version: the version to search.
            vectors: (B, Px * d) components of items, of length 1.
            k: the number of items to return.
            exclude: B times (n,) integer ids.
            allow: as in `Index.search`; a mask has one value for each of `ids`.
        """
        corpus = self._at(version).contents.corpus
        own_k = min(k, len(corpus.ids))
        if own_k == 0 or len(vectors) == 0:
            return _empty_answer(vectors)
        found = similar.find_similar(corpus, vectors, own_k, similar.filter_of(corpus, exclude, allow))
        return ShardAnswer(
            ids=searching.found_ids(corpus, found),
            scores=found.scores,
            ceiling=found.ceiling,
            num_scored=found.num_scored,
        )

    @plain_arithmetic()
    def put(
        self,
        version: int,
        kept: int,
        snapshot: int,
        batch: ItemBatch,
        *,
        replaces: bool,
        numbers: Mapping[str, int] | None,
    ) -> ShardState:
        """Add items to a version, or replace those with the same ids; the result is a new version.

        Versions after the given one are abandoned, so that a call may be repeated.

        Args:
            version: the version to start from.
            kept: another version, which readers may still ask for: cleanup does not remove it.
            snapshot: the number of the snapshot that the change starts from; if there is a later one, the change comes
                too late and is refused.
            batch: the items, with their ids.
            replaces: replace items that have the same ids; otherwise they raise IdExistsError.
            numbers: the integers of new string ids.
        """

        def change(index: Index) -> None:
            index.contents.put(batch, None, metadata=None, replaces=replaces, show_progress=False, numbers=numbers)

        return self._change(version, kept, snapshot, change)

    def remove(self, version: int, kept: int, snapshot: int, ids: ArrayLike) -> ShardState:
        """Remove items from a version, as `put` adds them; ids that are not here are ignored."""
        return self._change(version, kept, snapshot, lambda index: index.remove(ids, missing_ok=True))

    def compact(self, version: int, kept: int, snapshot: int) -> ShardState:
        """Write all items of a version again in the order of their ids, without the removed ones."""
        return self._change(version, kept, snapshot, lambda index: index.compact())

    def close(self) -> None:
        """Release all versions that are open."""
        with self._opening:
            while self._opened:
                self._opened.popitem()[1].close()

    def _change(self, version: int, kept: int, snapshot: int, change: Callable[[Index], None]) -> ShardState:
        """Change a version while it and the kept one are open: cleanup removes no open version."""

        def check_base() -> None:
            newest = find_snapshots(self._folder.parent)[-1:]
            if newest != [snapshot]:
                raise IndexFolderError(
                    f"a change of {self._folder} starts from snapshot {snapshot} but {newest} is the newest: it comes "
                    "too late, and nothing of it was kept; call it again."
                )

        base, pinned = self._at(version), self._at(kept)
        index = open_version(base, version, check_base=check_base)
        change(index)
        del base, pinned
        with self._opening:
            self._keep(index.version, index)
        return _state(index)

    def _at(self, version: int) -> Index:
        """Return a version; versions that were asked for last stay open, and share the segments that they have."""
        with self._opening:
            if version not in self._opened:
                self._keep(version, self._open(version))
            self._opened.move_to_end(version)
            return self._opened[version]

    def _keep(self, version: int, index: Index) -> None:
        self._opened[version] = index
        while len(self._opened) > OPEN_VERSIONS:
            self._opened.popitem(last=False)  # a search that is under way keeps its version until it is done

    def _open(self, version: int) -> Index:
        if self._opened:
            return open_version(next(reversed(self._opened.values())), version)
        index = Index.open(self._folder, version=version, engine=self._engine, kernel=self._kernel, verify=self._verify)
        if index.contents.birth != self._birth:
            raise IndexFolderError(
                f"{self._folder} holds index {index.contents.birth} but {self._birth} belongs to this split; restore "
                "the shard from a copy, or split the index again."
            )
        return index


def _state(index: Index) -> ShardState:
    segments = index.contents.corpus.segments
    largest = max((int(segment.ids[-1]) for segment in segments if len(segment)), default=-1)
    return ShardState(index.version, len(index), largest)


def _rows_of(corpus: Corpus, ids: Tensor) -> Tensor:
    """Return the rows (B, n) of ids (B, n) that are here; -1 for -1."""
    return corpus.rows[torch.searchsorted(corpus.ids, ids.clamp_min(0))].masked_fill(ids == NO_ITEM, NO_ROW)


def _empty_answer(components: Tensor) -> ShardAnswer:
    """Return the answer of a shard without items."""
    num_queries = len(components)
    return ShardAnswer(
        ids=torch.empty(num_queries, 0, dtype=torch.int64),
        scores=components.new_empty(num_queries, 0),
        ceiling=components.new_full((num_queries,), -torch.inf),
        num_scored=torch.zeros(num_queries, dtype=torch.int64),
    )
