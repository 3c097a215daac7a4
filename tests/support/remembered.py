"""A collection in memory, for tests of what is done with collections: it is exact, counts its changes, and can fail."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.index.engines import Behind, CollectionState, Table
from railsearch.index.engines.collection import Floats, Integers, has_no_tables


@dataclass
class Held:
    """The content of one collection."""

    note: str
    dim: int
    items: dict[int, tuple[int, Floats]] = field(default_factory=dict)


@dataclass(frozen=True)
class Remembered:
    """An engine whose collections live in this process."""

    collection: str
    behind: Behind | str = Behind.REFUSE
    max_n: int | None = None
    max_filter_ids: int = 10_000

    is_exact = False
    sees_every_row = False
    supports_threshold = False
    is_persistent = False
    held: ClassVar[dict[str, Held]] = {}
    writes_left: ClassVar[list[int]] = []
    """If it is not empty, its only element counts down, and the write after that fails."""
    searches: ClassVar[list[tuple[int, list[int] | None, list[int] | None]]] = []
    """The arguments of all searches: n, only, without."""

    @property
    def key(self) -> str:
        return f"Remembered({self.collection!r})"

    table_key = key

    @property
    def place(self) -> str:
        return f"collection {self.collection!r} in memory"

    def check_available(self, dim: int | None = None) -> None:
        pass

    def build(self, name: str, vectors: Tensor) -> Table:
        raise has_no_tables(self)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> Table:
        raise has_no_tables(self)

    def connect(self) -> "RememberedCollection":
        return RememberedCollection(self)


class RememberedCollection:
    def __init__(self, engine: Remembered) -> None:
        self._name = engine.collection

    @property
    def _held(self) -> Held:
        return Remembered.held[self._name]

    def describe(self) -> CollectionState | None:
        held = Remembered.held.get(self._name)
        return None if held is None else CollectionState(held.note, held.dim)

    def create(self, dim: int, note: str) -> None:
        Remembered.held[self._name] = Held(note, dim)

    def mark(self, note: str) -> None:
        self._held.note = note

    def load(self) -> None:
        pass

    def stored(self, first: int, last: int) -> tuple[Integers, Integers]:
        chosen = sorted((own, checksum) for own, (checksum, _) in self._held.items.items() if first <= own <= last)
        both = np.array(chosen, dtype=np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def put(self, ids: Integers, checksums: Integers, vectors: Floats) -> None:
        if Remembered.writes_left:
            if not Remembered.writes_left[0]:
                raise EngineError("the server went away")
            Remembered.writes_left[0] -= 1
        for own, checksum, vector in zip(ids.tolist(), checksums.tolist(), vectors, strict=True):
            self._held.items[own] = (checksum, vector.copy())

    def remove(self, ids: Integers) -> None:
        for own in ids.tolist():
            self._held.items.pop(own, None)

    def finish(self) -> None:
        pass

    def nearest(
        self, vectors: Floats, n: int, *, only: Integers | None, without: Integers | None
    ) -> tuple[Integers, Floats]:
        named = [None if ids is None else ids.tolist() for ids in (only, without)]
        Remembered.searches.append((n, *named))
        ids = [
            own
            for own in sorted(self._held.items)
            if (named[0] is None or own in named[0]) and (named[1] is None or own not in named[1])
        ]
        found = np.full((len(vectors), n), -1, dtype=np.int64)
        scores = np.full((len(vectors), n), -np.inf, dtype=np.float32)
        if ids:
            products = vectors @ np.stack([self._held.items[own][1] for own in ids]).T
            order = np.argsort(-products, axis=1, kind="stable")[:, :n]
            found[:, : order.shape[1]] = np.array(ids)[order]
            scores[:, : order.shape[1]] = np.take_along_axis(products, order, axis=1)
        return found, scores

    def drop(self) -> None:
        Remembered.held.pop(self._name, None)

    def close(self) -> None:
        pass
