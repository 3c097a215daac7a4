"""Jobs: long work on an index, one at a time, whose result is asked for later."""

import collections
import datetime as dt
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from railsearch.foundation.errors import RailsearchError
from railsearch.server.problems import Problem, problem_of

logger = logging.getLogger(__name__)
KEPT_JOBS = 100


class State(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Job:
    """One piece of long work."""

    id: str
    kind: str
    index: str
    created_at: str
    state: State = State.RUNNING
    finished_at: str | None = None
    result: dict[str, object] | None = None
    problem: Problem | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the job as JSON values."""
        return {
            "id": self.id,
            "kind": self.kind,
            "index": self.index,
            "state": str(self.state),
            "created_at": self.created_at,
            "finished_at": self.finished_at,
            "result": self.result,
            "problem": None if self.problem is None else self.problem.to_dict(),
        }


class Jobs:
    """The jobs of a server: one that runs, and the last ones that have ended."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._jobs: collections.OrderedDict[str, Job] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[Job]:
        """Yield all jobs, the newest first."""
        with self._lock:
            return iter(list(reversed(self._jobs.values())))

    def get(self, job_id: str) -> Job:
        """Return one job."""
        found = self._jobs.get(job_id)
        if found is None:
            raise Problem("not-found", f"there is no job {job_id!r:.80}; the last {KEPT_JOBS} are kept.")
        return found

    def start(self, kind: str, index: str, work: Callable[[], dict[str, object]]) -> Job:
        """Start a job; raises Problem if another one runs."""
        with self._lock:
            running = next((job for job in self._jobs.values() if job.state is State.RUNNING), None)
            if running is not None:
                raise Problem(
                    "job-running",
                    f"job {running.id} ({running.kind} of {running.index}) is running; wait until it is done.",
                )
            job = Job(uuid.uuid4().hex[:12], kind, index, _now())
            self._jobs[job.id] = job
            while len(self._jobs) > KEPT_JOBS:
                self._jobs.popitem(last=False)
            self._thread = threading.Thread(target=self._run, args=(job, work), name=f"railsearch-{kind}", daemon=True)
            self._thread.start()
            return job

    def wait(self, seconds: float) -> None:
        """Wait for the job that runs; it is left behind if it takes longer. A commit is complete or missing anyway."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, job: Job, work: Callable[[], dict[str, object]]) -> None:
        try:
            job.result = work()
        except BaseException as error:  # a panic of polars is no Exception, and would leave the job running forever
            if not isinstance(error, (RailsearchError, Problem)):
                logger.exception("job %s failed", job.id)
            job.problem = problem_of(error, self._names)
        job.finished_at = _now()
        job.state = State.DONE if job.problem is None else State.FAILED


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
