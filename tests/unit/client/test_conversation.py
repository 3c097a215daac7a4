"""Deadlines and retries, with a clock of our own: what a real server cannot be asked to produce."""

import pytest

from railsearch.client.conversation import Call, Compute, Link, Pause, Request, Send, Step, pause_before_retry
from railsearch.client.problems import Reply
from railsearch.errors import ServerBusyError, ServerTimeoutError

PROBLEM = b'{"type": "urn:railsearch:problem:queue-full", "detail": "256 queries wait; try again."}'
DONE = Reply(200, {}, b"done")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def busy(retry_after: str, status: int = 429) -> Reply:
    return Reply(status, {"content-type": "application/problem+json", "retry-after": retry_after}, PROBLEM)


def perform(replies: list[Reply], *, seconds_of_work: float = 0.0, timeout: float = 10.0) -> tuple[list[Step], bytes]:
    """Perform the steps of a call with given replies; return the steps other than computations, and the answer."""
    clock = Clock()
    call = Call(lambda _: Request("GET", "/"), lambda reply, _: reply.body)
    steps = call.steps(Link("http://server", timeout, clock=clock, jitter=lambda: 1.0))
    done: list[Step] = []
    value: object = None
    left = iter(replies)
    while True:
        try:
            step = steps.send(value)
        except StopIteration as end:
            return done, end.value
        if isinstance(step, Compute):
            value = step.function()
            clock.now += seconds_of_work
            continue
        done.append(step)
        clock.now += step.seconds if isinstance(step, Pause) else 0
        value = next(left) if isinstance(step, Send) else None


def test_an_answer_is_read() -> None:
    steps, answer = perform([DONE])
    assert answer == b"done"
    assert [type(step) for step in steps] == [Send]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_after_its_time(status: int) -> None:
    steps, answer = perform([busy("2", status), busy("1", status), DONE])
    assert answer == b"done"
    assert [step.seconds for step in steps] == [10.0, 3.0, 7.0, 1.5, 5.5]  # jitter adds half; the total shrinks


def test_a_third_refusal_is_an_error() -> None:
    with pytest.raises(ServerBusyError, match="256 queries wait"):
        perform([busy("0"), busy("0"), busy("0"), DONE])


def test_no_wait_beyond_the_deadline() -> None:
    with pytest.raises(ServerBusyError):  # at once: an answer after 9 s could not be used
        perform([busy("9"), DONE], timeout=5.0)


def test_the_time_of_encoding_counts() -> None:
    with pytest.raises(ServerTimeoutError, match="within 5 s"):
        perform([DONE], seconds_of_work=5.0, timeout=5.0)


@pytest.mark.parametrize("status", [400, 408, 409, 500, 502, 504, 507])
def test_other_failures_are_not_repeated(status: int) -> None:
    assert pause_before_retry(Reply(status, {"retry-after": "0"}, b""), jitter=0.0) is None


@pytest.mark.parametrize("retry_after", ["Wed, 21 Oct 2015 07:28:00 GMT", "-1", "nan", "inf", "86400", ""])
def test_a_strange_time_is_not_waited_for(retry_after: str) -> None:
    assert pause_before_retry(busy(retry_after), jitter=0.0) is None


def test_a_refusal_without_a_time_is_not_repeated() -> None:
    assert pause_before_retry(Reply(503, {}, b""), jitter=0.0) is None


def test_jitter_spreads_clients_even_if_the_server_names_no_time() -> None:
    assert pause_before_retry(busy("0"), jitter=0.0) == 0.0
    assert pause_before_retry(busy("0"), jitter=0.5) == 0.05
    assert pause_before_retry(busy("4"), jitter=0.5) == 5.0
