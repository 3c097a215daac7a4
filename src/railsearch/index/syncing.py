"""Sync: bring the collection of an engine up to the version of an index; the index folder is the truth.

The items of the index and the ids and checksums of the collection are compared range by range, in the order of ids.
Only items that are missing or differ are written, and only those that the index no longer has are removed. So a sync
that was killed goes on where it ended, a second one changes nothing, and compaction of the index changes nothing.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.progress import counting
from railsearch.index.corpus import Corpus, stamp_of, vector_dim
from railsearch.index.engines import (
    Collection,
    Engine,
    Stamp,
    as_collection_engine,
    check_owner,
    ensure_available,
)
from railsearch.index.engines.collection import LARGEST_ID, Floats, Integers
from railsearch.index.index import Index

ITEMS_PER_RANGE = 8192
BYTES_PER_WRITE = 2**23
"""Vectors that one request writes; servers accept requests of a limited size."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The changes that a sync made."""

    version: int
    """The version of the index that the collection holds now."""
    num_items: int
    num_written: int
    num_removed: int

    @property
    def num_unchanged(self) -> int:
        """Items that the collection held already."""
        return self.num_items - self.num_written


def sync_engine(index: Index, engine: Engine, *, show_progress: bool | None = None) -> SyncReport:
    """Bring the collection of an engine up to the version of an index that is open; create it if it is missing.

    Calling it again is safe: it goes on after an interruption, and changes nothing if nothing changed.

    Args:
        index: an index folder, opened without an engine or with this one.
        engine: Milvus(...) or Postgres(...), or another engine that keeps a collection.
        show_progress: a progress bar; by default on a terminal only.

    Raises:
        InvalidInputError: the engine keeps no collection, or the index is in memory only.
        EngineError: the server failed, or the collection holds something else.
    """
    corpus = index.contents.corpus
    keeper = as_collection_engine(ensure_available(engine, vector_dim(engine, corpus.similarity)))
    if keeper is None:
        raise InvalidInputError(f"engine is {engine.key}, which keeps no collection; it builds its tables by itself.")
    if corpus.origin is None:
        raise InvalidInputError("this index is in memory only; build it with Index.build(..., path=...).")
    expected = stamp_of(corpus.similarity, corpus.segments, corpus.origin, num_items=len(corpus.ids))
    collection = keeper.connect()
    try:
        state = collection.describe()
        check_owner(keeper, state, expected)
        if state is not None and (held := Stamp.decode(state.note)) is not None and _is_same(held, expected):
            return SyncReport(expected.version, len(corpus.ids), 0, 0)
        if state is None:
            collection.create(expected.dim, dataclasses.replace(expected, is_complete=False).encode())
        collection.load()
        work = f"sync to {keeper.place}"
        with counting(work, len(corpus.ids), is_shown=show_progress) as count:
            writer = _Writer(collection, expected)
            for first in range(0, max(1, len(corpus.ids)), ITEMS_PER_RANGE):
                last = min(first + ITEMS_PER_RANGE, len(corpus.ids))
                writer.update_range(corpus, first, last)
                count(last - first)
        collection.finish()
        collection.mark(expected.encode())
    finally:
        collection.close()
    return SyncReport(expected.version, len(corpus.ids), writer.num_written, writer.num_removed)


class _Writer:
    """Changes to a collection, counted; the first one marks it as incomplete."""

    def __init__(self, collection: Collection, expected: Stamp) -> None:
        self._collection = collection
        self._expected = expected
        self._is_marked = False
        self.num_written = 0
        self.num_removed = 0

    def update_range(self, corpus: Corpus, first: int, last: int) -> None:
        """Make the collection hold exactly the live items first to last - 1, in the order of ids, in their range."""
        ids: Integers = corpus.ids[first:last].cpu().numpy()
        low = int(corpus.ids[first - 1]) + 1 if first else 0
        high = int(ids[-1]) if last < len(corpus.ids) else LARGEST_ID
        vectors = _vectors_of(corpus, corpus.rows[first:last])  # (n, Px * d)
        checksums = checksums_of(vectors)  # (n,)
        held, held_checksums = self._collection.stored(low, high)
        places = np.searchsorted(held, ids).clip(max=max(0, len(held) - 1))
        is_held = held[places] == ids if len(held) else np.zeros(len(ids), dtype=bool)
        if len(held):
            is_held &= held_checksums[places] == checksums
        (missing,) = np.nonzero(~is_held)
        gone = np.setdiff1d(held, ids)
        if len(missing) or len(gone):
            self._begin()
        step = max(1, BYTES_PER_WRITE // max(1, vectors.shape[1] * vectors.itemsize))
        for start in range(0, len(missing), step):
            chosen = missing[start : start + step]
            self._collection.put(ids[chosen], checksums[chosen], vectors[chosen])
            self.num_written += len(chosen)
        for start in range(0, len(gone), ITEMS_PER_RANGE):
            chosen = gone[start : start + ITEMS_PER_RANGE]
            self._collection.remove(chosen)
            self.num_removed += len(chosen)

    def _begin(self) -> None:
        if not self._is_marked:
            self._collection.mark(dataclasses.replace(self._expected, is_complete=False).encode())
            self._is_marked = True


def checksums_of(vectors: Floats) -> Integers:
    """Return a checksum (n,) of each of the vectors (n, D)."""
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    return np.array([xxhash.xxh3_64_intdigest(row.tobytes()) >> 1 for row in rows], dtype=np.int64)


def _vectors_of(corpus: Corpus, rows: Tensor) -> Floats:
    """Return all components of items, one after the other: (n, Px * d)."""
    components = corpus[rows].components if len(rows) else corpus.segments[0].parts.components[:0]  # (n, Px, d)
    found: Floats = components.detach().cpu().to(torch.float32).flatten(1).numpy()
    return found


def _is_same(held: Stamp, expected: Stamp) -> bool:
    """Return whether a collection holds the same items; versions that differ only in tuning do."""
    return held.is_complete and held.layout == expected.layout
