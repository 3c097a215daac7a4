"""Workers: where shards live, and the one way to ask them, whether they are in this process or on other machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from railsearch.distributed.shard import Shard
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Engine

METHODS = frozenset(
    {
        "columns",
        "compact",
        "describe",
        "explain",
        "find",
        "find_text",
        "ids",
        "items",
        "matched",
        "open",
        "put",
        "remove",
        "search",
        "similar",
        "vectors",
    }
)
"""The methods of a shard that a call may name."""


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Everything that a process needs to open one shard."""

    number: int
    folder: Path
    birth: str
    """The random id of the index in the folder: an index of another split has another one."""
    engine: Engine | None = None
    """The engine of its first stage, as in `Index.open`."""
    kernel: str | None = None
    verify: str = "full"
    """When the bytes of its folder are checked, as in `Index.open`."""

    def open(self) -> Shard:
        """Return the shard; its folder is opened and checked when a version of it is first asked for."""
        return Shard(self.folder, birth=self.birth, engine=self.engine, kernel=self.kernel, verify=self.verify)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a shard's method. Arguments and answer are plain values that can be sent to another process.

    Every call may be repeated: one that changes a shard names the version that it starts from.
    """

    shard: int
    method: str
    arguments: Mapping[str, object] = field(default_factory=dict)

    def run(self, shard: Shard) -> object:
        """Return the answer of a shard."""
        if self.method not in METHODS:
            raise InvalidInputError(f"a shard has no method {self.method!r:.80}; choose from: {sorted(METHODS)}.")
        return getattr(shard, self.method)(**self.arguments)


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the answer of a shard that stayed away after all retries."""

    shard: int
    reason: str


class Workers(Protocol):
    """The processes that hold the shards."""

    def ask(self, calls: Sequence[Call]) -> list[object]:
        """Run all calls, in parallel if possible; return one answer for each, or `Lost`.

        An error that railsearch raises on purpose is raised here as it is.
        """
        ...

    def close(self) -> None:
        """Release the versions that are open."""
        ...


class LocalWorkers:
    """All shards in this process, one after the other: each search uses all cores by itself."""

    def __init__(self, places: Sequence[ShardPlace]) -> None:
        self._shards = [place.open() for place in places]

    def ask(self, calls: Sequence[Call]) -> list[object]:
        """Run all calls, one after the other."""
        return [call.run(self._shards[call.shard]) for call in calls]

    def close(self) -> None:
        """Release the versions that are open."""
        for shard in self._shards:
            shard.close()
