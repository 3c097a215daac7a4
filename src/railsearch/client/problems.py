"""Problems as errors: an answer that is no success, or no answer at all, becomes an error of `railsearch.errors`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from railsearch import errors
from railsearch.errors import (
    AccessDeniedError,
    NotServedError,
    RailsearchError,
    ServerBusyError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from railsearch.foundation.json_values import JsonValue

PREFIX = "urn:railsearch:problem:"
BY_STATUS: dict[int, type[RailsearchError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotServedError,
    408: ServerTimeoutError,
    429: ServerBusyError,
    503: ServerBusyError,
}
BY_TYPE: dict[str, type[RailsearchError]] = {
    "invalid-input": errors.InvalidInputError,
    "limit-exceeded": errors.InvalidInputError,
    "malformed-request": errors.InvalidInputError,
    "body-too-large": errors.InvalidInputError,
    "not-enough-items": errors.NotEnoughItemsError,
    "index-locked": errors.IndexLockedError,
    "index-rebuilt": errors.IndexRebuiltError,
    "fingerprint": errors.FingerprintError,
    "job-running": ServerBusyError,
    "deadline": ServerTimeoutError,
    "storage": errors.StorageError,
}
SHOWN_LETTERS = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of a server as it came; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def error_of(reply: Reply, *, url: str) -> RailsearchError:
    """Return the error that an unsuccessful answer means."""
    if 300 <= reply.status < 400:
        place = reply.headers.get("location", "another place")[:SHOWN_LETTERS]
        return ServerError(f"{url} redirects to {place}; give the address of the server itself.")
    problem = _problem_of(reply)
    if problem is None:
        return ServerError(
            f"{url} answered with status {reply.status}, but not as a railsearch server does; check the address, and "
            "any proxy on the way."
        )
    return error_of_problem(problem)


def error_of_problem(problem: Mapping[str, JsonValue]) -> RailsearchError:
    """Return the error that a problem names: the library's own class if it has one."""
    status, kind = problem.get("status"), str(problem.get("type", "")).removeprefix(PREFIX)
    detail = str(problem.get("detail") or problem.get("title") or "the server gave no reason.")
    named = getattr(errors, str(problem.get("error")), None)
    if isinstance(named, type) and issubclass(named, RailsearchError):
        return named(detail)
    return BY_TYPE.get(kind, BY_STATUS.get(status if isinstance(status, int) else 0, ServerError))(detail)


def timed_out(url: str, timeout: float) -> ServerTimeoutError:
    """Return the error for a call whose time is over."""
    return ServerTimeoutError(
        f"{url} gave no answer within {timeout:g} s, retries included; raise timeout, or ask for less at a time."
    )


def unreachable(url: str, reason: Exception) -> ServerUnreachableError:
    """Return the error for a connection that failed."""
    why = str(reason).strip() or type(reason).__name__
    return ServerUnreachableError(
        f"{url} cannot be reached ({why[:SHOWN_LETTERS]}); check the address, and that `railsearch serve` runs there."
    )


def read_json(reply: Reply, *, url: str) -> dict[str, JsonValue]:
    """Return the JSON object of a successful answer."""
    try:
        value = json.loads(reply.body) if reply.media_type == "application/json" else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise foreign(reply, url=url)
    return value


def foreign(reply: Reply, *, url: str) -> ServerError:
    """Return the error for a success that is not in the form of a railsearch server."""
    return ServerError(
        f"{url} answered with {reply.media_type or 'no content type'}, but not as a railsearch server does; check the "
        "address."
    )


def _problem_of(reply: Reply) -> dict[str, JsonValue] | None:
    if reply.media_type != "application/problem+json":
        return None
    try:
        value = json.loads(reply.body)
    except ValueError:
        return None
    is_ours = isinstance(value, dict) and str(value.get("type", "")).startswith(PREFIX)
    return {**value, "status": reply.status} if is_ours else None
