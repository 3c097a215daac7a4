"""Pieces of work as Ray tasks.

Plain tasks and not Ray Data: a piece is a file or a folder that its worker writes, complete or missing, so no data pass
through Ray's object store. Ray Data would move blocks through it, write files under random names that a second run
cannot recognise, and need pandas and pyarrow.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch

from railsearch.distributed.batch.runners import Task
from railsearch.distributed.ray_cluster import connect
from railsearch.foundation.errors import ClusterError, RailsearchError
from railsearch.foundation.inputs import check_count

TASKS_PER_CPU = 2
"""Tasks that wait or run at once, for each CPU of the cluster; the others are not submitted yet."""


class RayRunner:
    """Pieces of work as Ray tasks, each on its own CPU; a worker process opens model and index once.

    A piece whose worker dies is done again by another one. Input, model and output must be on a file system that all
    machines of the cluster share.
    """

    def __init__(self, *, address: str | None = None, cpus_per_part: int = 1, retries: int = 3) -> None:
        """Store the settings; nothing is connected before `run`.

        Args:
            address: address of the cluster; by default that of the environment variable RAY_ADDRESS, or else a new Ray
                on this machine.
            cpus_per_part: CPUs that a piece takes, which are also the threads that compute it.
            retries: how often a piece is done again if its worker dies.
        """
        self.address = address
        self.cpus_per_part = check_count(cpus_per_part, name="cpus_per_part")
        self.retries = check_count(retries, name="retries", minimum=0)

    def run(self, task: Task, numbers: Sequence[int], on_done: Callable[[int], None]) -> None:
        """Do the pieces in any order."""
        ray = connect(self.address)
        submit = ray.remote(num_cpus=self.cpus_per_part, max_retries=self.retries)(_do).remote
        name, shared, waiting = uuid.uuid4().hex, ray.put(task), list(reversed(numbers))
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                num_cpus = int(ray.cluster_resources().get("CPU", 1))  # a cluster may grow while the job runs
                while waiting and len(running) < max(1, TASKS_PER_CPU * num_cpus // self.cpus_per_part):
                    number = waiting.pop()
                    running[submit(name, shared, number, self.cpus_per_part)] = number
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    number = running.pop(reference)
                    num_rows = _result(ray, reference, number)
                    if not task.is_done(number):
                        raise ClusterError(
                            f"a worker has done part {number} but its result is not here; choose an output on a file "
                            "system that all machines of the cluster share."
                        )
                    on_done(num_rows)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


_opened: dict[str, Callable[[int], int]] = {}
"""The task that this worker process has open, by the name of its run."""


def _do(name: str, task: Task, number: int, num_threads: int) -> int:
    torch.set_num_threads(num_threads)
    if name not in _opened:
        _opened.clear()
        _opened[name] = task.open()
    return _opened[name](number)


def _result(ray: Any, reference: object, number: int) -> int:
    """Return the number of rows of a piece, or raise the error of its worker."""
    try:
        return int(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, (RailsearchError, OSError)):
            raise cause from None
        raise ClusterError(f"part {number} failed ({cause!r}); finished parts are kept.") from error
    except ray.exceptions.RayError as error:
        cause = str(error).partition("\n")[0]
        raise ClusterError(
            f"part {number} was given up because its workers died ({cause}); finished parts are kept, run the job "
            "again to continue."
        ) from error
