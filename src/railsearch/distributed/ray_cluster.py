"""A Ray cluster: the connection, actors that each hold one replica of a shard, and the fates of calls to them."""

import logging
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import railsearch
from railsearch.distributed.cluster import Answered, Fate, Refused, Replica, Ticket, Vanished
from railsearch.distributed.workers import Call, ShardPlace
from railsearch.foundation.errors import ClusterError
from railsearch.foundation.extras import install_advice, missing_extra

LEAST_RAY = (2, 40)
"""The oldest release of Ray whose errors and restarts are known to be those that this module expects."""
CONNECT_SECONDS = 5.0
START_SECONDS = 120.0
"""Time in which the cluster must have room for all actors; an autoscaler may have to start machines."""
FETCH_SECONDS = 10.0
CALLS_AT_ONCE = 8
"""Calls that one actor works on at the same time; more wait in front of it."""
LEAST_MEMORY = 2**20
"""Bytes that an actor reserves at least; Ray refuses to place one that reserves nothing."""


class Holder:
    """The process of one replica.

    Errors are returned, not raised: Ray would wrap them in a class of its own. Nothing is opened here before the first
    call, because Ray does not restart an actor whose constructor failed.
    """

    def __init__(self, place: ShardPlace, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._folder = place.folder
        self._shard = place.open()

    def check(self, version: str) -> str | None:
        """Return why this process cannot serve; None if it can."""
        if version != railsearch.__version__:
            return f"railsearch {version} asks but the node has {railsearch.__version__}; install the same everywhere"
        if not self._folder.is_dir():
            return f"the node has no folder {self._folder}; put the shards where all nodes can read them"
        return None

    def run(self, call: Call) -> Answered | Refused:
        """Run a call. The shard checks every byte of a version before it serves it."""
        try:
            return Answered(call.run(self._shard))
        except Exception as error:  # the asking process raises it
            return Refused(error)


class RayCluster:
    """The actors of all shards on a Ray cluster.

    The replicas of one shard form a placement group, which Ray spreads over nodes. If a node is lost, Ray moves its
    part of the group to other nodes and restarts the actors there.
    """

    def __init__(self, places: Sequence[ShardPlace], *, replicas: int, cpus: float = 0.0) -> None:
        self._places = {place.number: place for place in places}
        self._cpus = cpus
        self._groups: dict[int, Any] = {}
        self._actors: dict[Replica, Any] = {}
        self.replicas = [Replica(place.number, number) for place in places for number in range(replicas)]

    def start(self, address: str | None) -> None:
        """Connect, start all actors and check that each can serve; raises ClusterError otherwise."""
        ray = connect(address)
        deadline = time.monotonic() + START_SECONDS
        for place in self._places.values():
            count = sum(replica.shard == place.number for replica in self.replicas)
            bundles = [_resources(place.folder, self._cpus)] * count
            self._groups[place.number] = ray.util.placement_group(bundles, strategy="SPREAD")
        if not all(group.wait(max(1.0, deadline - time.monotonic())) for group in self._groups.values()):
            needed = _shown(*(bundle for group in self._groups.values() for bundle in group.bundle_specs))
            self.close()
            raise ClusterError(
                f"the cluster has no room for {len(self.replicas)} workers: they need {needed} and it has "
                f"{_shown(ray.cluster_resources())}; add nodes, or use fewer replicas."
            )
        for replica in self.replicas:
            self.replace(replica)
        self._check(ray, deadline)

    def _check(self, ray: Any, deadline: float) -> None:
        checks = {actor.check.remote(railsearch.__version__): replica for replica, actor in self._actors.items()}
        _, missing = ray.wait(list(checks), num_returns=len(checks), timeout=max(1.0, deadline - time.monotonic()))
        problems = [f"{checks[ticket]} did not start within {START_SECONDS:g} seconds" for ticket in missing]
        for ticket, replica in checks.items():
            if ticket in missing:
                continue
            try:
                found = ray.get(ticket)
            except ray.exceptions.RayError as error:
                found = _first_line(error)
            if found is not None:
                problems.append(f"{replica}: {found}")
        if problems:
            self.close()
            raise ClusterError(f"{len(problems)} of {len(checks)} workers cannot serve; {problems[0]}.")

    def replace(self, replica: Replica) -> None:
        """Start an actor for a replica, in the place of one that Ray does not restart."""
        ray = _import_ray()
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            placement_group=self._groups[replica.shard], placement_group_bundle_index=replica.number
        )
        place = self._places[replica.shard]
        resources = dict(_resources(place.folder, self._cpus))
        options = {
            "num_cpus": resources.pop("CPU", 0),
            "memory": resources.pop("memory", None),
            "max_restarts": -1,
            "max_task_retries": 0,  # a call is retried at another replica, which answers at once
            "max_concurrency": CALLS_AT_ONCE,
            "scheduling_strategy": strategy,
        }
        self._actors[replica] = ray.remote(Holder).options(**options).remote(place, max(1, int(self._cpus)))

    def send(self, replica: Replica, call: Call) -> Ticket:
        """Start a call at a replica."""
        return self._actors[replica].run.remote(call)

    def wait(self, tickets: Sequence[Ticket], seconds: float) -> list[Ticket]:
        """Wait until one of the calls is done, but not longer; return those that are."""
        ray = _import_ray()
        if not tickets:
            time.sleep(seconds)
            return []
        first, rest = ray.wait(list(tickets), timeout=seconds)
        if first and rest:
            more, _ = ray.wait(rest, num_returns=len(rest), timeout=0)
            first.extend(more)
        return list(first)

    def fate(self, ticket: Ticket) -> Fate:
        """Return how a call that is done has ended."""
        ray = _import_ray()
        final = (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnschedulableError)
        try:
            outcome: Answered | Refused = ray.get(ticket, timeout=FETCH_SECONDS)
        except ray.exceptions.RayTaskError as error:  # the call or its answer could not be sent
            cause = getattr(error, "cause", None)
            return Refused(cause if isinstance(cause, Exception) else error)
        except ray.exceptions.RayError as error:
            return Vanished(_first_line(error), is_final=isinstance(error, final))
        return outcome

    def close(self) -> None:
        """End all actors and release their resources."""
        ray = _import_ray()
        if ray.is_initialized():
            for actor in self._actors.values():
                ray.kill(actor)
            for group in self._groups.values():
                ray.util.remove_placement_group(group)
        self._actors.clear()
        self._groups.clear()


def connect(address: str | None = None) -> Any:
    """Return Ray, connected to a cluster; raises an error that tells what is missing.

    Args:
        address: HOST:PORT of the head of a cluster, or "auto" for the cluster of this machine. By default the cluster
            that the program is connected to, or that of RAY_ADDRESS; without one, Ray is started on this machine.
    """
    ray = _import_ray()
    check_release(ray.__version__)
    if ray.is_initialized():
        return ray
    if address is not None and address != "auto":
        _check_address(address)
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address or 'this machine'}: {_first_line(error)}; "
            "start one, see docs/how-to/ray.md."
        ) from error
    return ray


def _import_ray() -> Any:
    try:
        import ray  # noqa: PLC0415  (optional)
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra("ray", "ray") from error
    return ray


def check_release(release: str) -> None:
    """Check that a release of Ray is new enough.

    >>> check_release("2.60.0")
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if numbers < LEAST_RAY:
        needed = ".".join(map(str, LEAST_RAY))
        raise ClusterError(f"Ray {release} is installed but {needed} or newer is needed; {install_advice('ray')}")


def _check_address(address: str) -> None:
    """Check that somebody listens: Ray itself would try for more than a minute."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ClusterError(f"the address of the Ray cluster is {address!r:.80}; give HOST:PORT of its head, or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {error.strerror or error}; start one, see docs/how-to/ray.md."
        ) from error


def _resources(folder: Path, cpus: float) -> Mapping[str, float]:
    """Return what an actor reserves: the bytes of its shard, and CPUs if wanted."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    return {"memory": max(size, LEAST_MEMORY), **({"CPU": cpus} if cpus else {})}


def _shown(*resources: Mapping[str, float]) -> str:
    """Return the sum of resources as text."""
    cpus = sum(own.get("CPU", 0.0) for own in resources)
    memory = sum(own.get("memory", 0.0) for own in resources) / 2**20
    return f"{cpus:g} CPUs and {memory:,.0f} MiB of memory"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__
