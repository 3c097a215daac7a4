"""The contract of collections: engines that keep the components of all items of an index in one place on a server.

Such an engine builds no tables. One vector for each item, its components one after the other, answers every first
stage by inner product (see `slots.py`), so that a vector database needs one collection and one approximate index.
The index folder stays the truth: `sync_engine` brings a collection up to date, and searches score with the folder.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from railsearch.foundation.errors import EngineError
from railsearch.index.engines.contract import Engine

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

LARGEST_ID = 2**63 - 1
FORMAT = 1


class Behind(StrEnum):
    """How a search treats a collection that holds another version of the index."""

    REFUSE = "refuse"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Origin:
    """The index folder and the version that items come from."""

    birth: str
    """The random id of the index; another index at the same path has another one."""
    version: int
    fingerprint: str
    """The fingerprint of the similarity."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The note that a collection carries: which index it holds, at which version."""

    birth: str
    fingerprint: str
    version: int
    layout: str
    """A checksum of the segments and of what is live in them: equal layouts hold the same items."""
    num_items: int
    num_components: int
    component_dim: int
    is_complete: bool
    """False while a sync is under way, or after one that was interrupted."""

    @property
    def dim(self) -> int:
        """The dimension of the vectors: all components of an item."""
        return self.num_components * self.component_dim

    def encode(self) -> str:
        """Return the stamp as text."""
        return json.dumps({"railsearch": FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> "Stamp | None":
        """Read a stamp from text that a server returned; None if it is none."""
        try:
            found = json.loads(text)
            if found.pop("railsearch") != FORMAT:
                return None
            stamp = cls(**found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        kinds = cls.__annotations__
        is_sound = all(type(getattr(stamp, name)) is kind for name, kind in kinds.items())
        return stamp if is_sound else None


@dataclass(frozen=True, slots=True)
class CollectionState:
    """A collection as the server describes it."""

    note: str
    """The text that `mark` stored; empty if there is none."""
    dim: int


class Collection(Protocol):
    """A connection to one collection. Several threads may search it at the same time; one at most changes it."""

    def describe(self) -> CollectionState | None:
        """Return the state of the collection; None if there is none of this name."""
        ...

    def create(self, dim: int, note: str) -> None:
        """Create the collection with its note, both or neither."""
        ...

    def mark(self, note: str) -> None:
        """Replace the note."""
        ...

    def load(self) -> None:
        """Make the collection ready to be searched and read."""
        ...

    def stored(self, first: int, last: int) -> tuple[Integers, Integers]:
        """Return the ids from first to last, both included, and their checksums; every change so far is seen."""
        ...

    def put(self, ids: Integers, checksums: Integers, vectors: Floats) -> None:
        """Add items (n,) with vectors (n, D), or replace those with the same ids."""
        ...

    def remove(self, ids: Integers) -> None:
        """Remove items; ids that are not there are ignored."""
        ...

    def finish(self) -> None:
        """Make all changes durable, and build the approximate index."""
        ...

    def nearest(
        self, vectors: Floats, n: int, *, only: Integers | None, without: Integers | None
    ) -> tuple[Integers, Floats]:
        """Return ids (V, n) with large inner products with each of the vectors (V, D), and these products.

        -1 stands for no item. At most one of `only` and `without` is given; they name the ids to search, or to omit.
        """
        ...

    def drop(self) -> None:
        """Remove the collection, if there is one."""
        ...

    def close(self) -> None:
        """Close the connection; a closed one is not used again, but may be closed again."""
        ...


class CollectionEngine(Engine, Protocol):
    """An engine that keeps one collection on a server instead of tables. It is never exact."""

    @property
    def place(self) -> str:
        """The server and the collection in words, without credentials."""
        ...

    @property
    def behind(self) -> Behind | str:
        """Whether searches refuse a collection that holds another version of the index."""
        ...

    @property
    def max_filter_ids(self) -> int:
        """The most ids that a search can name in a filter."""
        ...

    def connect(self) -> Collection:
        """Return a connection to the collection, which need not exist.

        Raises:
            MissingExtraError: the client library is not installed.
            EngineError: the server does not answer, or refuses the credentials.
        """
        ...


def as_collection_engine(engine: Engine) -> CollectionEngine | None:
    """Return the engine if it keeps a collection, otherwise None."""
    found: CollectionEngine | None = engine if callable(getattr(engine, "connect", None)) else None  # type: ignore[assignment]
    return found


def has_no_tables(engine: CollectionEngine) -> EngineError:
    """Return the error of a collection engine that is asked for a table."""
    return EngineError(f"{engine.key} keeps one collection and builds no tables; bring it up to date with sync_engine.")
