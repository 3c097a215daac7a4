"""The choice of workers: shards in this process, or in actors of Ray."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from railsearch.distributed.layout import Layout, shard_name
from railsearch.distributed.workers import LocalWorkers, ShardPlace, Workers
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice, check_count
from railsearch.index import Engine


class WorkersName(StrEnum):
    """The kinds of workers that railsearch starts itself."""

    LOCAL = "local"
    RAY = "ray"


def start_workers(
    workers: Workers | WorkersName | str | None, places: Sequence[ShardPlace], *, replicas: int, address: str | None
) -> Workers:
    """Return workers of a kind, or those that were given; see `ShardedIndex.open`."""
    replicas = check_count(replicas, name="replicas")
    needs_ray = replicas > 1 or address is not None
    if workers is None:
        workers = WorkersName.RAY if needs_ray else WorkersName.LOCAL
    if isinstance(workers, str):
        chosen = as_choice(WorkersName, workers, name="workers")
        if chosen is WorkersName.RAY:
            from railsearch.distributed.ray_workers import RayWorkers  # noqa: PLC0415  (only if wanted)

            return RayWorkers.start(places, replicas=replicas, address=address)
        workers = LocalWorkers(places)
    if needs_ray:
        raise InvalidInputError(
            f"replicas is {replicas} and address is {address!r:.80} but workers is not 'ray'; omit both, or pass "
            "workers='ray'."
        )
    return workers


def shard_places(
    folder: Path, layout: Layout, *, engine: Engine | None = None, kernel: str | None = None, verify: str = "full"
) -> list[ShardPlace]:
    """Return where every shard is, for the workers that open them."""
    return [
        ShardPlace(number, folder / shard_name(number), birth, engine, kernel, verify)
        for number, birth in enumerate(layout.births)
    ]
