"""Shards on Ray: a call goes to one replica of its shard, and to another one if the first is lost or slow."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from railsearch.distributed.cluster import Answered, Cluster, Fate, Replica, Ticket, Vanished
from railsearch.distributed.presence import PROBE_SECONDS, Presence
from railsearch.distributed.ray_cluster import RayCluster
from railsearch.distributed.workers import Call, Lost, ShardPlace
from railsearch.foundation.errors import (
    EngineError,
    IndexFolderError,
    IndexLockedError,
    InvalidInputError,
    StorageError,
)

logger = logging.getLogger(__name__)
CHANGES = frozenset({"compact", "put", "remove"})
"""Methods that write. They are sent again only after the process that had them is lost, never beside it."""
OF_A_PLACE = (EngineError, IndexFolderError, StorageError)
"""Errors of a read that another replica may not have: its node may see an intact folder."""
LOOK_SECONDS = 0.05
"""Time between two looks at a call for which no replica is there."""


@dataclass(slots=True, eq=False)
class _Errand:
    """One call, and the replicas that have it."""

    call: Call
    deadline: float
    asked: list[Replica] = field(default_factory=list)
    busy: dict[Ticket, Replica] = field(default_factory=dict)
    not_before: float = 0.0
    hedge_at: float | None = None
    reason: str = "no worker was there"
    answer: object = None
    error: Exception | None = None
    is_settled: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the call writes."""
        return self.call.method in CHANGES

    def answer_with(self, answer: object) -> None:
        """Settle the call."""
        self.answer, self.is_settled = answer, True

    def fail_with(self, error: Exception) -> None:
        """Settle the call with an error."""
        self.error, self.is_settled = error, True


class RayWorkers:
    """Actors that hold shards, with replicas, behind the contract of `Workers`. Several threads may ask at once."""

    def __init__(self, cluster: Cluster, *, deadline_seconds: float = 30.0, hedge_seconds: float | None = 2.0) -> None:
        """Take over the processes of a cluster; for the other arguments see `start`."""
        self._cluster = cluster
        self._presence = Presence(cluster)
        self._deadline_seconds = deadline_seconds
        self._hedge_seconds = hedge_seconds
        self._counting = threading.Lock()
        self.num_retried = 0
        """Calls that were sent again because a process was lost or refused."""
        self.num_hedged = 0
        """Reads that a second replica got because the first was slow."""

    @classmethod
    def start(
        cls,
        places: Sequence[ShardPlace],
        *,
        replicas: int = 1,
        address: str | None = None,
        cpus: float = 0.0,
        deadline_seconds: float = 30.0,
        hedge_seconds: float | None = 2.0,
    ) -> "RayWorkers":
        """Start an actor for each replica of each shard.

        Args:
            places: the shards.
            replicas: copies of each shard, on different nodes if there are enough.
            address: HOST:PORT of the head of a Ray cluster, "auto", or None: see `ray_cluster.connect`.
            cpus: CPUs that each actor reserves, and the threads of its searches (at least 1). Each actor also reserves
                the bytes of its folder as memory.
            deadline_seconds: how long a read may take, and how long a shard may stay away, before a call is `Lost`.
            hedge_seconds: how long a read may take before a second replica is asked as well; None for never.
        """
        if replicas < 1:
            raise InvalidInputError(f"replicas is {replicas}; give at least 1.")
        for name, value in (("cpus", cpus), ("deadline_seconds", deadline_seconds)):
            if not value >= 0:
                raise InvalidInputError(f"{name} is {value}; give at least 0.")
        cluster = RayCluster(places, replicas=replicas, cpus=cpus)
        cluster.start(address)
        return cls(cluster, deadline_seconds=deadline_seconds, hedge_seconds=hedge_seconds)

    @property
    def num_away(self) -> int:
        """The number of replicas that are away now."""
        return self._presence.num_away

    def ask(self, calls: Sequence[Call]) -> list[object]:
        """Run all calls in parallel; return one answer for each, or `Lost`. An error of a shard is raised."""
        self._presence.remember(calls)
        deadline = time.monotonic() + self._deadline_seconds
        errands = [_Errand(call, deadline) for call in calls]
        while unsettled := [errand for errand in errands if not errand.is_settled]:
            has_failed = any(errand.error is not None for errand in errands)
            if has_failed and not any(errand.is_change and errand.busy for errand in unsettled):
                break  # changes that are under way are waited for: nothing happens after an error was raised
            for errand in unsettled:
                self._send_if_due(errand)
            owners = {ticket: errand for errand in unsettled for ticket in errand.busy}
            for ticket in self._cluster.wait(list(owners), self._pause(unsettled)):
                errand = owners[ticket]
                replica = errand.busy.pop(ticket)
                if not errand.is_settled:
                    self._settle(errand, replica, self._cluster.fate(ticket))
            for errand in unsettled:
                if not errand.is_settled and self._is_lost(errand):
                    errand.answer_with(Lost(errand.call.shard, errand.reason))
        for errand in errands:
            if errand.error is not None:
                raise errand.error
        return [errand.answer for errand in errands]

    def close(self) -> None:
        """End all actors."""
        self._presence.close()
        self._cluster.close()

    def _send_if_due(self, errand: _Errand) -> None:
        now = time.monotonic()
        is_slow = bool(errand.busy)
        if now < errand.not_before or (is_slow and (errand.hedge_at is None or now < errand.hedge_at)):
            return
        presence, shard = self._presence, errand.call.shard
        present = presence.of_shard(shard) if errand.asked else presence.in_turn(shard)
        fresh = [replica for replica in present if replica not in errand.asked]
        errand.hedge_at = None
        chosen = fresh if is_slow else fresh or present
        if not chosen:
            return
        with self._counting:
            self.num_hedged += is_slow
            self.num_retried += bool(errand.asked) and not is_slow
        self._send(errand, chosen[0])
        if self._hedge_seconds is not None and not errand.is_change and not is_slow:
            errand.hedge_at = now + self._hedge_seconds
        if errand.call.method == "open":  # all replicas open a version, and the first one answers
            for other in fresh[1:]:
                self._send(errand, other)

    def _send(self, errand: _Errand, replica: Replica) -> None:
        errand.asked.append(replica)
        errand.busy[self._cluster.send(replica, errand.call)] = replica

    def _settle(self, errand: _Errand, replica: Replica, fate: Fate) -> None:
        if isinstance(fate, Answered):
            errand.answer_with(fate.value)
        elif isinstance(fate, Vanished):
            errand.reason = f"{replica}: {fate.reason}"
            self._presence.lose(replica, fate)
        elif isinstance(fate.error, IndexLockedError) and len(errand.asked) > 1 and time.monotonic() < errand.deadline:
            # The system may not have noticed yet that the process of an earlier attempt is gone.
            errand.not_before = time.monotonic() + PROBE_SECONDS
            errand.reason = str(fate.error)
        elif not errand.is_change and isinstance(fate.error, OF_A_PLACE) and self._has_fresh(errand):
            logger.warning("%s: %s", replica, fate.error)
        elif not errand.busy:
            errand.fail_with(fate.error)

    def _has_fresh(self, errand: _Errand) -> bool:
        return any(replica not in errand.asked for replica in self._presence.of_shard(errand.call.shard))

    def _is_lost(self, errand: _Errand) -> bool:
        """Return whether to give up: the time is over, or no replica has been there for as long."""
        now = time.monotonic()
        if errand.busy:
            if errand.is_change or now < errand.deadline:  # Ray tells if the process of a change is lost
                return False
            errand.reason = f"no answer within {self._deadline_seconds:g} seconds"
            return True
        since = self._presence.all_away_since(errand.call.shard)
        if since is not None:
            errand.reason = self._presence.reasons(errand.call.shard) or errand.reason
        return now >= errand.deadline or (since is not None and now >= since + self._deadline_seconds)

    def _pause(self, errands: Sequence[_Errand]) -> float:
        """Return how long to wait for an answer before the next look."""
        if not all(errand.busy for errand in errands):
            return LOOK_SECONDS
        moments = [errand.deadline for errand in errands]
        moments += [errand.hedge_at for errand in errands if errand.hedge_at is not None]
        return min(1.0, max(LOOK_SECONDS, min(moments) - time.monotonic()))
