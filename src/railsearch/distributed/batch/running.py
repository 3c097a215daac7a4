"""Run a batch job: the parts that are missing, in this process or wherever a runner computes them."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from railsearch.distributed.batch.job import Job, PartTask
from railsearch.distributed.batch.parts import PartsFolder, as_output, opened_parts
from railsearch.distributed.batch.runners import LocalRunner, Runner
from railsearch.foundation.progress import counting


@dataclass(frozen=True, slots=True)
class JobReport:
    """Summary of one run of a job."""

    output: Path
    num_parts: int
    num_computed: int
    """Parts that this run computed; the others were there before."""
    num_rows: int
    """Rows that this run wrote."""
    seconds: float

    def to_dict(self) -> dict[str, int | float | str]:
        """Return the report as JSON values."""
        return {**asdict(self), "output": str(self.output)}


def run_job(
    job: Job,
    output: str | Path,
    *,
    runner: Runner | None = None,
    on_complete: Callable[[PartsFolder], None] | None = None,
    show_progress: bool | None = None,
) -> JobReport:
    """Compute the parts of a job that its folder does not have yet.

    Args:
        job: the job.
        output: the folder. If the job was interrupted there, it continues; another job there is refused.
        runner: computes the parts; by default in this process.
        on_complete: called with the folder when it has all parts, before other processes may use it.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    started = time.perf_counter()
    with opened_parts(
        as_output(output), kind=job.kind, stated=job.stated(), places=job.places(), num_parts=job.num_parts
    ) as folder:
        missing, num_rows = folder.missing(), 0
        with counting(f"{job.kind}: parts", job.num_parts, is_shown=show_progress) as count:
            count(job.num_parts - len(missing))

            def on_part(rows: int) -> None:
                nonlocal num_rows
                num_rows += rows
                count(1)

            if missing:
                (runner or LocalRunner()).run(PartTask(job, folder.path, folder.identity), missing, on_part)
        seconds = time.perf_counter() - started
        if on_complete is not None:
            on_complete(folder)
    return JobReport(folder.path, job.num_parts, len(missing), num_rows, seconds)
