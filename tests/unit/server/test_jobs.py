"""Jobs: one at a time, and every one of them ends."""

import threading

import pytest

from railsearch.errors import InvalidInputError
from railsearch.server.jobs import Jobs, State
from railsearch.server.problems import Problem


def test_one_job_runs_at_a_time() -> None:
    jobs, may_end = Jobs({}), threading.Event()

    def work() -> dict[str, object]:
        may_end.wait()
        return {"version": 2}

    job = jobs.start("compact", "movies", work)
    with pytest.raises(Problem, match=rf"job {job.id} \(compact of movies\) is running") as raised:
        jobs.start("tune", "movies", dict)
    assert raised.value.status == 409
    may_end.set()
    jobs.wait(60)
    assert (jobs.get(job.id).state, job.result, job.problem) == (State.DONE, {"version": 2}, None)
    assert jobs.start("tune", "movies", dict).id != job.id


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidInputError("/data/movies.index is wrong"), 422), (KeyboardInterrupt("a panic"), 500)]
)
def test_a_job_that_fails_has_ended(error: BaseException, status: int) -> None:
    jobs = Jobs({"/data/movies.index": "movies"})

    def work() -> dict[str, object]:
        raise error

    job = jobs.start("tune", "movies", work)
    jobs.wait(60)
    assert job.state is State.FAILED
    assert job.finished_at is not None
    assert job.problem is not None
    assert (job.problem.status, "/data" in job.problem.detail) == (status, False)
