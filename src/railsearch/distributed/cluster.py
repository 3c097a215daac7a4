"""The processes that hold replicas of shards, as retries see them: calls are sent, waited for, and end in a fate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from railsearch.distributed.workers import Call

Ticket = Any
"""A call under way; hashable."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a shard, held by one process."""

    shard: int
    number: int

    def __str__(self) -> str:
        return f"replica {self.number} of shard {self.shard}"


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a shard."""

    value: object


@dataclass(frozen=True, slots=True)
class Refused:
    """The error that a shard raised."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Vanished:
    """The process or its node was lost before the answer arrived; the call may have been executed."""

    reason: str
    is_final: bool = False
    """Whether the process does not come back by itself."""


Fate = Answered | Refused | Vanished


class Cluster(Protocol):
    """The processes of all replicas."""

    replicas: list[Replica]

    def send(self, replica: Replica, call: Call) -> Ticket:
        """Start a call at a replica."""
        ...

    def wait(self, tickets: Sequence[Ticket], seconds: float) -> list[Ticket]:
        """Wait until one of the calls is done, but not longer; return those that are."""
        ...

    def fate(self, ticket: Ticket) -> Fate:
        """Return how a call that is done has ended."""
        ...

    def replace(self, replica: Replica) -> None:
        """Start a process for a replica whose process does not come back."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...
