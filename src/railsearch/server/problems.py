"""Errors as problem details (RFC 9457): the message of the library, and never a trace or a path of the machine."""

import re
from dataclasses import dataclass, field

from railsearch.errors import (
    EngineError,
    FingerprintError,
    IdExistsError,
    IndexFolderError,
    IndexLockedError,
    IndexRebuiltError,
    InvalidInputError,
    NotEnoughItemsError,
    NotEnoughMemoryError,
    RailsearchError,
    ShardLostError,
    StorageError,
)
from railsearch.server.json_text import MalformedError, write_json
from railsearch.server.limits import LimitError

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:railsearch:problem:"
PATHS = re.compile(r"(?<![\w.:%~-])(?:~|[A-Za-z]:)?(?:[/\\][^\s'\"`,;:()<>\[\]{}]+)+")
"""Absolute paths; a slash within a word, such as and/or, is none."""
TITLES = {
    "malformed-request": (400, "Malformed request"),
    "unauthorized": (401, "Unauthorized"),
    "forbidden": (403, "Forbidden"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "not-acceptable": (406, "Not acceptable"),
    "request-timeout": (408, "Request timeout"),
    "index-locked": (409, "Index locked"),
    "index-rebuilt": (409, "Index rebuilt"),
    "fingerprint": (409, "Another model"),
    "id-exists": (409, "Id exists"),
    "job-running": (409, "A job is running"),
    "body-too-large": (413, "Body too large"),
    "unsupported-media-type": (415, "Unsupported media type"),
    "wrong-host": (421, "Wrong host"),
    "invalid-input": (422, "Invalid input"),
    "not-enough-items": (422, "Not enough items"),
    "limit-exceeded": (422, "Limit exceeded"),
    "queue-full": (429, "Queue full"),
    "headers-too-large": (431, "Headers too large"),
    "internal": (500, "Internal error"),
    "draining": (503, "Draining"),
    "loading": (503, "Loading"),
    "deadline": (503, "Deadline passed"),
    "overloaded": (503, "Overloaded"),
    "shard-lost": (503, "Shard lost"),
    "storage": (507, "Storage"),
}

KINDS: dict[type[Exception], str] = {
    MalformedError: "malformed-request",
    IdExistsError: "id-exists",
    NotEnoughItemsError: "not-enough-items",
    NotEnoughMemoryError: "overloaded",
    InvalidInputError: "invalid-input",
    FingerprintError: "fingerprint",
    StorageError: "storage",
    ShardLostError: "shard-lost",
    IndexFolderError: "internal",
    EngineError: "internal",
    RailsearchError: "internal",
}
"""The problem of each error; the first that fits."""


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818  (the name of RFC 9457)
    """An answer that is an error."""

    name: str
    """The last part of its type, as in `TITLES`."""
    detail: str
    error: str | None = None
    """The class of `railsearch.errors` that the library raised."""
    limit: tuple[str, int] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    closes: bool = False
    """Whether the connection is closed, so that the rest of the request is not read."""

    @property
    def status(self) -> int:
        """The status of the answer."""
        return TITLES[self.name][0]

    def to_dict(self) -> dict[str, object]:
        """Return the problem as JSON values."""
        status, title = TITLES[self.name]
        body: dict[str, object] = {"type": PREFIX + self.name, "title": title, "status": status, "detail": self.detail}
        if self.error is not None:
            body["error"] = self.error
        if self.limit is not None:
            body["limit"] = {"name": self.limit[0], "value": self.limit[1]}
        return body

    def to_json(self) -> bytes:
        """Return the body of the answer."""
        return write_json(self.to_dict())


def problem_of(error: BaseException, names: dict[str, str] | None = None) -> Problem:
    """Return the problem that an error of the library becomes.

    Args:
        error: what was raised.
        names: names of indexes by the paths of their folders; a message shows the name.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, IndexLockedError):  # its message names a process and the machine
        return Problem("index-locked", "another writer is changing this index; try again later.", "IndexLockedError")
    if isinstance(error, IndexRebuiltError):
        return Problem(
            "index-rebuilt",
            "another index was built in this folder; refresh this one to serve it, then try again.",
            "IndexRebuiltError",
        )
    detail = without_paths(str(error), names or {})
    if isinstance(error, LimitError):
        return Problem("limit-exceeded", detail, "InvalidInputError", (error.name, error.value))
    for kind, name in KINDS.items():
        if isinstance(error, kind):
            headers = {"Retry-After": "1"} if name == "shard-lost" else {}
            return Problem(name, detail, None if kind is MalformedError else kind.__name__, headers=headers)
    return Problem("internal", "the server failed to answer; its log has the cause.")


def without_paths(message: str, names: dict[str, str]) -> str:
    """Return a message in which folders of indexes have their names, and other paths of the machine are hidden.

    >>> without_paths("/data/movies.index is damaged; see /var/log/x.", {"/data/movies.index": "movies"})
    'movies is damaged; see [path]'
    """
    for path, name in sorted(names.items(), key=lambda pair: -len(pair[0])):
        message = message.replace(path, name)
    return PATHS.sub("[path]", message)
