"""A collection on a server as a table of an index: ids become rows, filters expressions, and versions are checked."""

import contextlib
import hashlib
import logging
import threading
import time
import weakref
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.index.engines.collection import (
    Behind,
    Collection,
    CollectionEngine,
    CollectionState,
    Integers,
    Stamp,
)
from railsearch.index.engines.contract import NO_ROW, Nearest
from railsearch.kernels import RowFilter

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_CHECKS = 30.0
"""A search reads the stamp of the collection again if the last look at it is older than this."""
RESULTS_PER_REQUEST = 2**19
"""Rows that one request may ask for, over all of its vectors: answers have a largest size on every server."""
SPARE = 1.25
"""Rows that are asked for beyond the expected number, if too many are hidden to be named."""


class _Filter(NamedTuple):
    """A filter in the words of a server."""

    only: Integers | None = None
    without: Integers | None = None
    num_asked: int = 0


class CollectionTable:
    """The rows of one version of an index, searched in a collection that holds their components."""

    def __init__(self, engine: CollectionEngine, expected: Stamp, *, ids: Tensor, rows: Tensor, num_rows: int) -> None:
        """Store what the collection must hold; nothing is connected before the first use.

        Args:
            engine: the engine whose collection is searched.
            expected: the stamp that the collection must carry.
            ids: the ids (M,) of live items, ascending.
            rows: the row (M,) of each of them.
            num_rows: rows of the index, live or not.
        """
        self._engine = engine
        self._expected = expected
        self._ids = ids
        self._rows = rows
        self._num_rows = num_rows
        self._collection: Collection | None = None
        self._lock = threading.Lock()
        self._checked_at = -float("inf")
        self._warned: str | None = None

    def check(self) -> None:
        """Check that the collection holds this version of this index.

        Raises:
            EngineError: it does not, or the server does not answer; the message says what to do.
        """
        self._connected(is_due=True)

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, Px * d)."""
        num_queries, num_vectors, _ = vectors.shape
        n = min(n, self._num_rows)
        wanted = self._wanted(n, row_filter)
        if not wanted.num_asked or not num_queries:
            empty = vectors.new_full((num_queries, num_vectors, n), -torch.inf)  # (B, V, n)
            return Nearest(torch.full_like(empty, NO_ROW, dtype=torch.int64), empty)
        collection = self._connected(is_due=time.monotonic() - self._checked_at > SECONDS_BETWEEN_CHECKS)
        flat = vectors.detach().flatten(0, 1).cpu().to(torch.float32).numpy()  # (B * V, D)
        step = max(1, RESULTS_PER_REQUEST // wanted.num_asked)
        answers = [
            collection.nearest(
                np.ascontiguousarray(flat[first : first + step]), wanted.num_asked,
                only=wanted.only, without=wanted.without,
            )
            for first in range(0, len(flat), step)
        ]  # fmt: skip
        shape = (num_queries, num_vectors, wanted.num_asked)
        ids = torch.from_numpy(np.concatenate([ids for ids, _ in answers])).view(shape).to(vectors.device)
        scores = torch.from_numpy(np.concatenate([scores for _, scores in answers])).view(shape).to(vectors)
        return self._visible(self._rows_of(ids), scores, n, row_filter)

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Raise an error: a collection does not return the dot products of all rows."""
        raise EngineError(f"{self._engine.key} has no bounds; check sees_every_row before you ask for them.")

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Raise an error: a collection may miss rows above a threshold."""
        raise EngineError(f"{self._engine.key} has no thresholds; check supports_threshold before you ask for them.")

    def to_bytes(self) -> bytes:
        """Return no bytes: the server keeps the collection."""
        return b""

    def close(self) -> None:
        """Close the connection; the next search connects again."""
        with self._lock:
            collection, self._collection = self._collection, None
        if collection is not None:
            _close_quietly(collection)

    def _connected(self, *, is_due: bool) -> Collection:
        with self._lock:
            if self._collection is None:
                collection = self._engine.connect()
                try:
                    self._check_state(collection.describe())
                    collection.load()
                except BaseException:
                    collection.close()
                    raise
                self._collection = collection
                # A version that is no longer searched must not keep its connection.
                weakref.finalize(self, _close_quietly, collection).atexit = False
                self._checked_at = time.monotonic()
            elif is_due:
                self._check_state(self._collection.describe())
                self._checked_at = time.monotonic()
            return self._collection

    def _check_state(self, state: CollectionState | None) -> None:
        """Raise an error if the collection must not be searched; warn once if it is behind and may be."""
        check_owner(self._engine, state, self._expected)
        advice = "bring it up to date with sync_engine"
        if state is None:
            raise EngineError(f"{self._engine.place} does not exist; {advice}.")
        stamp = Stamp.decode(state.note)
        assert stamp is not None
        if stamp.is_complete and stamp.layout == self._expected.layout:
            return
        if not stamp.is_complete:
            problem = f"was left by a sync to version {stamp.version} that has not finished"
        else:
            problem = f"holds version {stamp.version} of this index but version {self._expected.version} is open"
        if self._engine.behind == Behind.REFUSE:
            raise EngineError(f"{self._engine.place} {problem}; {advice}, or allow it with behind='allow'.")
        if self._warned != problem:
            self._warned = problem
            logger.warning("%s %s; items may be missed: %s", self._engine.place, problem, advice)

    def _wanted(self, n: int, row_filter: RowFilter | None) -> _Filter:
        """Return the ids to search or to omit, and how many rows to ask for so that n are visible."""
        num_items, most = len(self._ids), self._engine.max_n
        only, without, num_asked = None, None, n
        if row_filter is not None and row_filter.is_allowed is not None:
            is_visible = row_filter.is_allowed[self._rows]  # (M,)
            num_visible = int(is_visible.sum())
            if not num_visible:
                return _Filter()
            if num_visible <= self._engine.max_filter_ids and num_visible < num_items:
                only = self._ids[is_visible].cpu().numpy()
                num_asked = min(n, num_visible)
            elif num_items - num_visible <= self._engine.max_filter_ids:
                hidden = self._ids[~is_visible]
                without = hidden.cpu().numpy() if len(hidden) else None
            else:
                num_asked = int(n * SPARE * num_items / num_visible) + 1
        if row_filter is not None and len(row_filter.queries):
            num_asked += int(torch.bincount(row_filter.queries).max())
        return _Filter(only, without, min(num_asked, num_items if most is None else min(num_items, most)))

    def _rows_of(self, ids: Tensor) -> Tensor:
        """Return the rows of ids; NO_ROW for those that this version does not have."""
        if not len(self._ids):
            return torch.full_like(ids, NO_ROW)
        places = torch.searchsorted(self._ids, ids).clamp_max(len(self._ids) - 1)
        return torch.where(self._ids[places] == ids, self._rows[places], NO_ROW)

    def _visible(self, rows: Tensor, scores: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Return the n best (B, V, n) of the rows and scores (B, V, asked) that the filter does not hide."""
        is_hidden = (rows == NO_ROW) | ~scores.isfinite()  # (B, V, asked)
        if row_filter is not None:
            if row_filter.is_allowed is not None:
                is_hidden |= ~row_filter.is_allowed[rows.clamp_min(0)]
            queries = torch.arange(len(rows), device=rows.device)[:, None, None]  # (B, 1, 1)
            is_hidden |= torch.isin(
                queries * self._num_rows + rows, row_filter.queries * self._num_rows + row_filter.rows
            ) & (rows != NO_ROW)
        scores, order = scores.masked_fill(is_hidden, -torch.inf).sort(dim=-1, descending=True, stable=True)
        missing = max(0, n - scores.shape[2])
        scores = torch.nn.functional.pad(scores[..., :n], (0, missing), value=-torch.inf)  # (B, V, n)
        rows = torch.nn.functional.pad(rows.gather(-1, order)[..., :n], (0, missing), value=NO_ROW)  # (B, V, n)
        return Nearest(rows.masked_fill(scores == -torch.inf, NO_ROW), scores)


def _close_quietly(collection: Collection) -> None:
    """Close a connection whose server may be gone; a closed one may be closed again."""
    with contextlib.suppress(Exception):
        collection.close()


def check_owner(engine: CollectionEngine, state: CollectionState | None, expected: Stamp) -> None:
    """Refuse a collection of another index, of another dimension, or that railsearch did not write."""
    if state is None:
        return
    stamp = Stamp.decode(state.note)
    other = "choose another collection, or drop this one if it is not needed."
    if stamp is None:
        raise EngineError(f"{engine.place} exists, but railsearch did not write it; {other}")
    if stamp.birth != expected.birth:
        raise EngineError(
            f"{engine.place} holds another index ({stamp.num_items:,} items, born as {stamp.birth:.8}) than this one "
            f"(born as {expected.birth:.8}); {other}"
        )
    if state.dim != expected.dim or stamp.num_components != expected.num_components:
        raise EngineError(
            f"{engine.place} has vectors of {state.dim} values ({stamp.num_components} components) but the index has "
            f"{expected.dim} ({expected.num_components} components); {other}"
        )
    if stamp.fingerprint != expected.fingerprint:
        raise EngineError(
            f"{engine.place} holds items of model {stamp.fingerprint:.8} but the index was built with "
            f"{expected.fingerprint:.8}; {other}"
        )


def layout_of(pieces: Iterable[tuple[str, Tensor | None]]) -> str:
    """Return a checksum of segments, each given by its name and by which of its rows are live (n,), None for all."""
    digest = hashlib.blake2b(digest_size=16)
    for name, is_live in pieces:
        digest.update(name.encode())
        is_whole = is_live is None or bool(is_live.all())
        digest.update(b"\0all" if is_whole or is_live is None else np.packbits(is_live.cpu().numpy()).tobytes())
    return digest.hexdigest()
