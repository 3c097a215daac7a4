"""Presence of replicas: which are there, since when others are away, and a thread that brings them back."""

import itertools
import logging
import threading
import time
from collections.abc import Collection

from railsearch.distributed.cluster import Answered, Cluster, Fate, Refused, Replica, Ticket, Vanished
from railsearch.distributed.workers import Call

logger = logging.getLogger(__name__)
PROBE_SECONDS = 0.25
"""Time between two attempts to reach a replica that is away."""


class Presence:
    """Replicas that can be asked. A lost one is not asked again before it has opened and checked its folder."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._replicas: dict[int, list[Replica]] = {}
        for replica in cluster.replicas:
            self._replicas.setdefault(replica.shard, []).append(replica)
        self._turns = {shard: itertools.count() for shard in self._replicas}
        self._lock = threading.Lock()
        self._away: dict[Replica, Vanished] = {}
        self._since: dict[Replica, float] = {}
        self._versions: dict[int, object] = {}
        self._repairing: threading.Thread | None = None
        self._is_closed = False

    @property
    def num_away(self) -> int:
        """The number of replicas that are away."""
        return len(self._away)

    def of_shard(self, shard: int) -> list[Replica]:
        """Return the replicas of a shard that are there."""
        return [replica for replica in self._replicas[shard] if replica not in self._away]

    def in_turn(self, shard: int) -> list[Replica]:
        """Do the same for a new call: each time another one comes first, which spreads the load."""
        own = self.of_shard(shard)
        first = next(self._turns[shard]) % max(1, len(own))
        return own[first:] + own[:first]

    def all_away_since(self, shard: int) -> float | None:
        """Return when the last replica of a shard was lost; None if one is there."""
        with self._lock:
            own = self._replicas[shard]
            return None if any(replica not in self._away for replica in own) else max(self._since[r] for r in own)

    def reasons(self, shard: int) -> str:
        """Return why the replicas of a shard are away."""
        with self._lock:
            return "; ".join(f"{own}: {fate.reason}" for own, fate in self._away.items() if own.shard == shard)

    def remember(self, calls: Collection[Call]) -> None:
        """Keep the versions that are asked for: a replica that comes back opens the last one before it serves."""
        for call in calls:
            if "version" in call.arguments:
                self._versions[call.shard] = call.arguments["version"]

    def lose(self, replica: Replica, fate: Vanished) -> None:
        """Note that a replica is away, and begin to bring it back."""
        with self._lock:
            if replica not in self._away:
                logger.warning("%s is away: %s", replica, fate.reason)
                self._since[replica] = time.monotonic()
            self._away[replica] = fate
            if self._repairing is None and not self._is_closed:
                self._repairing = threading.Thread(target=self._repair, name="railsearch-repair", daemon=True)
                self._repairing.start()

    def close(self) -> None:
        """Stop to bring replicas back."""
        with self._lock:
            self._is_closed = True
            repairing = self._repairing
        if repairing is not None:
            repairing.join()

    def _repair(self) -> None:
        """Probe replicas that are away until all are back."""
        probes: dict[Ticket, Replica] = {}
        while not self._is_closed:
            with self._lock:
                waiting = {replica: fate for replica, fate in self._away.items() if replica not in probes.values()}
                if not waiting and not probes:
                    self._repairing = None
                    return
            for replica, fate in waiting.items():
                if fate.is_final:
                    self._cluster.replace(replica)
                version = self._versions.get(replica.shard)
                probes[self._cluster.send(replica, Call(replica.shard, "open", {"version": version}))] = replica
            for ticket in self._cluster.wait(list(probes), PROBE_SECONDS):
                self._end_probe(probes.pop(ticket), self._cluster.fate(ticket))
            time.sleep(PROBE_SECONDS)

    def _end_probe(self, replica: Replica, fate: Fate) -> None:
        with self._lock:
            if isinstance(fate, Answered):
                del self._away[replica], self._since[replica]
                logger.warning("%s is back", replica)
            else:
                self._away[replica] = Vanished(str(fate.error)) if isinstance(fate, Refused) else fate
