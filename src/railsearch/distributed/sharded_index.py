"""The split index: shards that are searched and changed as one index, with the same calls and the same certificate."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, Self

import torch
from torch import Tensor

from railsearch.distributed.layout import SIMILARITY, Layout
from railsearch.distributed.locating import Located, check_ids, locate
from railsearch.distributed.opened import OpenSnapshot
from railsearch.distributed.query_side import QuerySide
from railsearch.distributed.searching import Partial, ShardedSearch, answers_of, ids_of_shards
from railsearch.distributed.similar import similar_items
from railsearch.distributed.starting import WorkersName, shard_places, start_workers
from railsearch.distributed.workers import Call, Workers
from railsearch.distributed.writing import ShardedWriter, changing, put_items, remove_items
from railsearch.folders import load_similarity
from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable, as_choice, as_path, check_count
from railsearch.foundation.results import Explanation, SearchResult
from railsearch.index import Allow, BruteForce, Engine, Exclude, Flat, Strategy
from railsearch.index.building import Items
from railsearch.index.engines import as_collection_engine, check_choice, ensure_available
from railsearch.index.keys import NOT_FOUND
from railsearch.index.searching import check_enough, check_strategy
from railsearch.kernels import KernelName, plain_arithmetic
from railsearch.similarity import QueryParts, Similarity


class ShardedIndex:
    """Shards of one index. A search asks all of them, and its answer has the certificate of the whole.

    Exact strategies return the same bits as one index that holds all items. Approximate ones choose their candidates in
    every shard, so that their answers are at least as good.
    """

    def __init__(
        self,
        *,
        path: Path,
        layout: Layout,
        opened: OpenSnapshot,
        query_side: QuerySide,
        workers: Workers,
        engine: Engine,
        is_pinned: bool = False,
    ) -> None:
        self.path = path
        """The folder."""
        self.layout = layout
        """The list of the shards, for other modules of this package."""
        self.workers = workers
        """The processes that hold the shards."""
        self._opened = opened
        self.query_side = query_side
        """The similarity that searches, for other modules of this package."""
        self.engine = engine
        """The engine of the first stage."""
        self._is_pinned = is_pinned
        self._writing = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        version: int | None = None,
        workers: Workers | WorkersName | str | None = None,
        replicas: int = 1,
        address: str | None = None,
        engine: Engine | None = None,
        kernel: str | None = None,
        verify: str = "full",
    ) -> Self:
        """Open a split index for reading and writing.

        Every shard must be there and belong to this split, and checks every byte of its folder. The snapshot that was
        opened does not change when others write; `refresh` moves on to the newest.

        Args:
            path: a folder that `shard_index` or `build_shards` wrote.
            version: the number of an older snapshot that is still kept; the newest if omitted.
            workers: "local" for this process, "ray" for actors of Ray, or workers of your own; by default "ray" with an
                address or several replicas, otherwise "local".
            replicas: copies of each shard on Ray.
            address: HOST:PORT of the head of a Ray cluster, or "auto"; by default that of RAY_ADDRESS, or a new one.
            engine: as in `Index.open`, for every shard; not one that keeps a collection on a server.
            kernel: as in `Index.open`.
            verify: as in `Index.open`, for every shard.
        """
        folder = as_path(path)
        layout = Layout.read(folder)
        wanted = None if kernel is None else as_choice(KernelName, kernel, name="kernel")
        found = OpenSnapshot.read(folder, layout, version)
        query_side = QuerySide.load(
            folder / SIMILARITY, fingerprint=layout.fingerprint, models=layout.models, kernel=wanted
        )
        chosen = Flat(found.manifests[0].scan) if engine is None else check_choice(engine)
        if as_collection_engine(chosen) is not None:
            raise InvalidInputError(
                f"engine is {chosen.key}, which keeps a collection of one index folder, but {folder} is split; choose "
                "Flat() or Faiss(...)."
            )
        ensure_available(chosen, query_side.similarity.component_dim)
        places = shard_places(folder, layout, engine=engine, kernel=kernel, verify=verify)
        started = start_workers(workers, places, replicas=replicas, address=address)
        return cls(
            path=folder,
            layout=layout,
            opened=OpenSnapshot.open(folder, layout, started, version),
            query_side=query_side,
            workers=started,
            engine=chosen,
            is_pinned=version is not None,
        )

    @property
    def similarity(self) -> Similarity:
        """A copy of the similarity; changes to it do not reach the index."""
        return load_similarity(self.path / SIMILARITY, expected_fingerprint=self.layout.fingerprint)

    @property
    def opened(self) -> OpenSnapshot:
        """The snapshot that is open, for other modules of this package."""
        return self._opened

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity."""
        return self.layout.fingerprint

    @property
    def num_shards(self) -> int:
        """The number of shards."""
        return self.layout.num_shards

    @property
    def version(self) -> int:
        """The number of the snapshot that is open: 1 after the split, and one more after each change."""
        return self._opened.snapshot.number

    @property
    def source(self) -> dict[str, str]:
        """The `source` that the index was built with."""
        return dict(self.layout.source)

    @property
    def has_keys(self) -> bool:
        """Whether the ids are strings."""
        return self.layout.has_keys

    @property
    def ids(self) -> Tensor:
        """All item ids, ascending; the integers inside if ids are strings."""
        return torch.cat(ids_of_shards(self.workers, self._opened.snapshot)).sort().values  # (M,)

    def __len__(self) -> int:
        return self._opened.snapshot.count

    def __repr__(self) -> str:
        kind = type(self.query_side.similarity).__name__
        where = f"version {self.version} of {self.path}"
        return f"ShardedIndex({len(self):,} items in {self.num_shards} shards, {kind}, {where})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            f"a ShardedIndex can be neither pickled nor copied; open {str(self.path)!r} with ShardedIndex.open(path)."
        )

    def close(self) -> None:
        """Release the versions that the workers have open."""
        self.workers.close()

    @plain_arithmetic()
    def search(
        self,
        queries: ArrayLike | QueryParts,
        k: int,
        strategy: Strategy | None = None,
        exclude: Exclude = None,
        allow: Allow = None,
        *,
        user_ids: ArrayLike | None = None,
        pad: bool = False,
        partial: Partial | str = Partial.REFUSE,
    ) -> SearchResult:
        """Find the k best items of all shards for each query, best first; ties go to the smaller id.

        Args:
            queries: as in `Index.search`.
            k: the number of items to return for each query; it may exceed the size of a shard.
            strategy: how to search; every shard searches like this. By default as in `Index.search`.
            exclude: as in `Index.search`.
            allow: as in `Index.search`. A polars expression must decide on each item by itself.
            user_ids: as in `Index.search`.
            pad: as in `Index.search`.
            partial: "refuse" raises ShardLostError if a shard stays away. "allow" answers from the other shards:
                `coverage` of the result is then below 1, and its ceiling is infinite, so it is not exact.
        """
        k = check_count(k, name="k")
        chosen = as_choice(Partial, partial, name="partial")
        opened = self._opened  # a refresh during this search does not change what it sees
        check_enough(k, opened.snapshot.count)
        if strategy is None:
            strategy = opened.tuned_strategy(k, self.engine) or BruteForce()
        check_strategy(strategy)
        parts = self.query_side.parts(queries, user_ids)
        return self._search_of(opened).run(parts, k, strategy, exclude=exclude, allow=allow, pad=pad, partial=chosen)

    def similar_items(
        self, ids: ArrayLike | int | str, k: int = 10, *, exclude: ArrayLike | None = None, allow: Allow = None,
        pad: bool = False,
    ) -> SearchResult:  # fmt: skip
        """Find the k items of all shards that are most similar to each of some items; see `Index.similar_items`."""
        search = self._search_of(self._opened)
        return similar_items(search, self.layout, ids, k, exclude=exclude, allow=allow, pad=pad)

    def find(self, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,), which may be strings; -1 for those that are not in the index."""
        return self._locate(ids).integers  # (n,)

    def explain(self, query: ArrayLike, item_id: int | str, *, user_id: int | None = None) -> Explanation:
        """Return the component scores and gate weights behind the score of one query and one item."""
        located = self._locate([item_id])
        if int(located.integers[0]) == NOT_FOUND:
            raise InvalidInputError(
                f"item_id is {item_id!r:.80}, which is not among the {len(self)} items of this index."
            )
        owner = int(located.shards[0])
        arguments = {
            "version": self._opened.snapshot.versions[owner],
            "query": query,
            "item_id": item_id,
            "user_id": user_id,
        }
        (found,) = answers_of(self.workers, [Call(owner, "explain", arguments)])
        assert isinstance(found, Explanation)
        return found

    def add(
        self, items: Items, ids: ArrayLike | None = None, *, metadata: ArrowTable | None = None,
        show_progress: bool | None = None,
    ) -> None:  # fmt: skip
        """Add items whose ids are not in the index, to the shards that they belong to; durable once this returns.

        If the process is killed before that, nothing was added: the same call may be repeated.

        Args:
            items: as in `Index.add`. Each batch is a commit of the shards that it touches; all of them are
                acknowledged together.
            ids: as in `Index.add`.
            metadata: as in `Index.add`.
            show_progress: a progress bar; by default on a terminal only.
        """
        self._put(items, ids, metadata, replaces=False, show_progress=show_progress)

    def upsert(
        self, items: Items, ids: ArrayLike | None = None, *, metadata: ArrowTable | None = None,
        show_progress: bool | None = None,
    ) -> None:  # fmt: skip
        """Add items, or replace those with the same ids, as `add` does; durable once this returns."""
        self._put(items, ids, metadata, replaces=True, show_progress=show_progress)

    def remove(self, ids: ArrayLike, *, missing_ok: bool = False) -> None:
        """Remove items; durable once this returns. For `missing_ok` see `Index.remove`."""
        with self._changing("remove") as writer:
            remove_items(writer, self.layout, ids, missing_ok=missing_ok)

    def compact(self) -> None:
        """Compact every shard; see `Index.compact`."""
        with self._changing("compact") as writer:
            writer.compact()

    def describe(self) -> dict[str, int | str | list[str] | None]:
        """Return a summary of this index by name, from the files that list its contents."""
        return {
            "path": str(self.path),
            **self._opened.describe(),
            "by": "id" if self.layout.by is None else self.layout.by,
            "engine": self.engine.key,
            "similarity": type(self.query_side.similarity).__name__,
            "ids": "strings" if self.has_keys else "integers",
        }

    def refresh(self) -> bool:
        """Open the newest snapshot; return True if it differs. Raises IndexFolderError if the index was split again."""
        if Layout.read(self.path) != self.layout:
            raise IndexFolderError(f"{self.path} was split again; open it again with ShardedIndex.open.")
        found = OpenSnapshot.open(self.path, self.layout, self.workers)
        self._is_pinned = False
        if found == self._opened:
            return False
        self._opened = found
        return True

    def _search_of(self, opened: OpenSnapshot) -> ShardedSearch:
        return ShardedSearch(
            workers=self.workers,
            snapshot=opened.snapshot,
            is_certifiable=self.query_side.similarity.is_certifiable,
            has_metadata=opened.has_metadata,
            has_keys=self.has_keys,
        )

    def _locate(self, ids: ArrayLike) -> Located:
        return locate(self.workers, self.layout, self._opened.snapshot.versions, check_ids(ids, self.layout))

    @plain_arithmetic()
    def _put(
        self,
        items: Items,
        ids: ArrayLike | None,
        metadata: ArrowTable | None,
        *,
        replaces: bool,
        show_progress: bool | None,
    ) -> None:
        with self._changing("upsert" if replaces else "add") as writer:
            put_items(
                writer,
                self.query_side.similarity,
                items,
                ids,
                metadata,
                replaces=replaces,
                show_progress=show_progress,
            )

    @contextlib.contextmanager
    def _changing(self, purpose: str) -> Iterator[ShardedWriter]:
        """Change the newest snapshot, and open the result."""
        pinned = self.version if self._is_pinned else None
        with self._writing, changing(self.path, self.workers, self.layout, purpose, pinned=pinned) as writer:
            yield writer
        self.refresh()
