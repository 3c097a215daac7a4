"""A call as steps without input or output: one total deadline, retries when a busy server asks for them.

`Client` and `AsyncClient` perform the same steps; only how they send and wait differs.
"""

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from railsearch.client.problems import Reply, error_of, timed_out
from railsearch.foundation.errors import InvalidInputError

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
MAX_RETRIES = 2
BUSY = (429, 503)
LONGEST_PAUSE = 60.0
HEAVY_BYTES = 1 << 17
"""Work on more bytes than this takes about a millisecond, so an event loop hands it to a thread."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, complete except for the address and the key of the server."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = ""
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Compute:
    """A step: call a function and pass its result back; an event loop calls a heavy one in a thread."""

    function: Callable[[], object]
    is_heavy: bool


@dataclass(frozen=True, slots=True)
class Send:
    """A step: send a request and pass the `Reply` back, within a number of seconds."""

    request: Request
    seconds: float
    total: float
    """Seconds that the whole call was given, for the error."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: wait."""

    seconds: float


Step: TypeAlias = Compute | Send | Pause
Steps: TypeAlias = Generator[Step, object, Answer]


@dataclass(frozen=True, slots=True)
class Link:
    """The server that steps are for."""

    url: str
    timeout: float
    """Seconds that a call may take in all, unless it was given its own."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


class Exchange(Protocol[Answer_co]):
    """Something that can be asked of a server, as steps that end with an answer."""

    def steps(self, link: Link) -> "Generator[Step, object, Answer_co]":
        """Return the steps."""
        ...


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request and how to read its answer."""

    encode: Callable[[float], Request]
    """Takes the seconds that the call may take."""
    read: Callable[[Reply, str], Answer]
    """Takes the reply and the address of the server, which errors name."""
    num_bytes: int = 0
    """About how large the request is."""
    timeout: float | None = None

    def steps(self, link: Link) -> Steps[Answer]:
        """Return the steps: encode, send, wait and send again if the server is busy, decode."""
        timeout = link.timeout if self.timeout is None else self.timeout
        deadline = link.clock() + timeout
        request = yield Compute(lambda: self.encode(timeout), is_heavy=self.num_bytes > HEAVY_BYTES)
        assert isinstance(request, Request)
        retries_left = MAX_RETRIES
        while True:
            seconds = deadline - link.clock()
            if seconds <= 0:
                raise timed_out(link.url, timeout)
            reply = yield Send(request, seconds, timeout)
            assert isinstance(reply, Reply)
            pause = pause_before_retry(reply, jitter=link.jitter())
            if pause is None or not retries_left or link.clock() + pause >= deadline:
                break  # a retry that cannot be answered in time is not worth the wait
            retries_left -= 1
            yield Pause(pause)
        if not 200 <= reply.status < 300:
            raise error_of(reply, url=link.url)
        answer = yield Compute(lambda: self.read(reply, link.url), is_heavy=len(reply.body) > HEAVY_BYTES)
        return answer  # type: ignore[return-value]  # the driver passes back what `read` returned


def checked_timeout(timeout: float) -> float:
    """Return the seconds that a call may take; raises InvalidInputError if they are none."""
    if not 0 < timeout < float("inf"):
        raise InvalidInputError(f"timeout is {timeout!r}; give a finite number of seconds above 0.")
    return timeout


def pause_before_retry(reply: Reply, *, jitter: float) -> float | None:
    """Return the seconds to wait before a retry, or None if the answer is not one to retry.

    The server's Retry-After is the least; up to half of it, and at least up to 0.1 s, is added, so that clients that
    were refused together do not return together.
    """
    if reply.status not in BUSY or "retry-after" not in reply.headers:
        return None
    try:
        least = float(reply.headers["retry-after"])
    except ValueError:
        return None  # a date, which a railsearch server does not send
    if not 0 <= least <= LONGEST_PAUSE:
        return None
    return least + jitter * max(0.1, least / 2)
