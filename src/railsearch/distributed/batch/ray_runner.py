"""The parts of a batch job as Ray tasks.

Plain tasks and not Ray Data: a part is a file that its worker writes, complete or missing, so no data pass through
Ray's object store. Ray Data would move blocks through it, write files under random names that a second run cannot
recognise, and need pandas and pyarrow.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from railsearch.distributed.batch.job import Compute, Job, PartTask
from railsearch.distributed.batch.parts import part_name
from railsearch.distributed.ray_cluster import connect
from railsearch.foundation.errors import ClusterError, RailsearchError
from railsearch.foundation.inputs import check_count

TASKS_PER_CPU = 2
"""Tasks that wait or run at once, for each CPU of the cluster; the others are not submitted yet."""


class RayRunner:
    """Parts as Ray tasks, each on its own CPU; a worker process opens model and index once.

    A part whose worker dies is computed again by another one. Input, model and output must be on a file system that all
    machines of the cluster share.
    """

    def __init__(self, *, address: str | None = None, cpus_per_part: int = 1, retries: int = 3) -> None:
        """Store the settings; nothing is connected before `run`.

        Args:
            address: address of the cluster; by default that of the environment variable RAY_ADDRESS, or else a new Ray
                on this machine.
            cpus_per_part: CPUs that a part takes, which are also the threads that compute it.
            retries: how often a part is computed again if its worker dies.
        """
        self.address = address
        self.cpus_per_part = check_count(cpus_per_part, name="cpus_per_part")
        self.retries = check_count(retries, name="retries", minimum=0)

    def run(self, task: PartTask, parts: Sequence[int], on_part: Callable[[int], None]) -> None:
        """Compute the parts in any order."""
        ray = connect(self.address)
        submit = ray.remote(num_cpus=self.cpus_per_part, max_retries=self.retries)(_compute).remote
        shared, waiting = ray.put(task), list(reversed(parts))
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                num_cpus = int(ray.cluster_resources().get("CPU", 1))  # a cluster may grow while the job runs
                while waiting and len(running) < max(1, TASKS_PER_CPU * num_cpus // self.cpus_per_part):
                    part = waiting.pop()
                    running[submit(shared, part, self.cpus_per_part)] = part
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    part = running.pop(reference)
                    num_rows = _result(ray, reference, part)
                    _check_is_here(task, part)
                    on_part(num_rows)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _compute(task: PartTask, part: int, num_threads: int) -> int:
    torch.set_num_threads(num_threads)
    return task.run(part, _opened(task.job))


@functools.lru_cache(maxsize=1)
def _opened(job: Job) -> Compute:
    """Open a job; a worker process does so once for all parts that it is given."""
    return job.open()


def _result(ray: Any, reference: object, part: int) -> int:
    """Return the number of rows of a part, or raise the error of its worker."""
    try:
        return int(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, (RailsearchError, OSError)):
            raise cause from None
        raise ClusterError(f"part {part} failed ({cause!r}); finished parts are kept.") from error
    except ray.exceptions.RayError as error:
        cause = str(error).partition("\n")[0]
        raise ClusterError(
            f"part {part} was given up because its workers died ({cause}); finished parts are kept, run the job again "
            "to continue."
        ) from error


def _check_is_here(task: PartTask, part: int) -> None:
    if not (task.folder / part_name(part)).is_file():
        raise ClusterError(
            f"a worker has written {part_name(part)} but {task.folder} does not have it here; choose an output on a "
            "file system that all machines of the cluster share."
        )
