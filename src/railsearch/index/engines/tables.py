"""The tables of one segment: each is opened or built once, the first time that a search needs it."""

import logging
import os
import threading
import weakref
from typing import Protocol

from torch import Tensor

from railsearch.index.engines.contract import Engine, Table
from railsearch.index.engines.guarded import GuardedTable, blaming

logger = logging.getLogger(__name__)

BYTES_PER_ROW = 8192
"""Bytes for each row that a stored table may have besides two copies of the vectors; a larger table is not kept."""
SPARE_BYTES = 2**20


class TableStore(Protocol):
    """A place that keeps the bytes of tables between processes. It is a cache: it may lose any of them."""

    def read(self, name: str, key: str, vectors: Tensor, *, max_bytes: int) -> bytes | None:
        """Return the bytes of the table with this name, key and form if their checksum matches, otherwise None."""
        ...

    def write(self, name: str, key: str, vectors: Tensor, stored: bytes) -> None:
        """Keep the bytes of a table; raise an OSError if that is impossible."""
        ...


class Tables:
    """Tables by engine and name. Each has its own lock: two can be built at the same time, none is built twice."""

    def __init__(self, store: TableStore | None = None) -> None:
        self._store = store
        self._slots: dict[tuple[Engine, str], _Slot] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._slots)

    def get(self, engine: Engine, name: str, vectors: Tensor) -> Table:
        """Return the table of vectors (N, d) that has this name."""
        with self._lock:
            slot = self._slots.get((engine, name))
            if slot is None or slot.is_abandoned:
                slot = self._slots[engine, name] = _Slot()
        with slot.lock:
            if slot.table is None:
                slot.table = GuardedTable(engine, self._open_or_build(engine, name, vectors), len(vectors))
            return slot.table

    def has(self, engine: Engine, name: str) -> bool:
        """Return whether a table is open."""
        slot = self._slots.get((engine, name))
        return slot is not None and slot.table is not None

    def close(self) -> None:
        """Close all tables; one that is needed again is opened or built again."""
        with self._lock:
            slots = dict(self._slots)
            self._slots.clear()
        _close_all(slots)

    def _open_or_build(self, engine: Engine, name: str, vectors: Tensor) -> Table:
        store = self._store if engine.is_persistent else None
        max_bytes = SPARE_BYTES + len(vectors) * (BYTES_PER_ROW + 2 * vectors.shape[1] * vectors.element_size())
        stored = None if store is None else store.read(name, engine.table_key, vectors, max_bytes=max_bytes)
        if stored is not None:
            try:
                return engine.open(name, vectors, stored)
            except Exception as error:  # a broken cache does no harm: the table is built again
                logger.warning("table %s of %s cannot be opened (%s); it is built again", name, engine.key, error)
        with blaming(engine, "build a table"):
            table = engine.build(name, vectors)
        if store is not None:
            try:
                stored = table.to_bytes()
                if len(stored) <= max_bytes:
                    store.write(name, engine.table_key, vectors, stored)
            except Exception as error:  # the table itself is ready: a search must not fail because of its cache
                logger.warning("table %s of %s is not kept on disk: %s", name, engine.key, error)
        return table


class _Slot:
    """The place of one table."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.table: Table | None = None
        self._process = os.getpid()

    @property
    def is_abandoned(self) -> bool:
        """Whether this process was forked while a thread of its parent, which does not run here, built the table."""
        return self.table is None and self._process != os.getpid()


def _close_all(slots: dict[tuple[Engine, str], _Slot]) -> None:
    for (engine, name), slot in slots.items():
        if slot.table is not None:
            try:
                slot.table.close()
            except Exception as error:  # the table is no longer needed
                logger.warning("table %s of %s could not be closed: %s", name, engine.key, error)
