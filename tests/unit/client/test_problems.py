"""Problems become the library's own errors, and a foreign server is told apart."""

import json

import pytest

from railsearch import errors
from railsearch.client.problems import Reply, error_of, read_json

URL = "http://server"


def problem(status: int, kind: str, **members: object) -> Reply:
    body = {"type": f"urn:railsearch:problem:{kind}", "title": "T", "detail": "what is wrong; what to do.", **members}
    return Reply(status, {"content-type": "application/problem+json; charset=utf-8"}, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "kind", "named", "expected"),
    [
        (422, "invalid-input", "InvalidInputError", errors.InvalidInputError),
        (422, "not-enough-items", "NotEnoughItemsError", errors.NotEnoughItemsError),
        (422, "limit-exceeded", None, errors.InvalidInputError),
        (400, "malformed-request", None, errors.InvalidInputError),
        (413, "body-too-large", None, errors.InvalidInputError),
        (401, "unauthorized", None, errors.AccessDeniedError),
        (403, "forbidden", None, errors.AccessDeniedError),
        (404, "not-found", None, errors.NotServedError),
        (408, "request-timeout", None, errors.ServerTimeoutError),
        (409, "index-locked", "IndexLockedError", errors.IndexLockedError),
        (409, "index-rebuilt", "IndexRebuiltError", errors.IndexRebuiltError),
        (409, "fingerprint", "FingerprintError", errors.FingerprintError),
        (409, "job-running", None, errors.ServerBusyError),
        (429, "queue-full", None, errors.ServerBusyError),
        (503, "draining", None, errors.ServerBusyError),
        (503, "deadline", None, errors.ServerTimeoutError),
        (500, "internal", "EngineError", errors.EngineError),
        (500, "internal", None, errors.ServerError),
        (507, "storage", "StorageError", errors.StorageError),
        (599, "never-heard-of", "NeverHeardOfError", errors.ServerError),
        (422, "invalid-input", "annotations", errors.InvalidInputError),
        (500, "internal", "__name__", errors.ServerError),
    ],
)
def test_a_problem_is_an_error_of_the_library(
    status: int, kind: str, named: str | None, expected: type[errors.RailsearchError]
) -> None:
    error = error_of(problem(status, kind, **({} if named is None else {"error": named})), url=URL)
    assert type(error) is expected
    assert str(error) == "what is wrong; what to do."


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, {"content-type": "text/html"}, b"<h1>nginx</h1>"),
        Reply(502, {}, b""),
        Reply(404, {"content-type": "application/problem+json"}, b"{"),
        Reply(404, {"content-type": "application/problem+json"}, b'{"type": "about:blank", "detail": "x"}'),
        Reply(404, {"content-type": "application/problem+json"}, b"[]"),
    ],
    ids=range(5),
)
def test_a_foreign_server_is_told_apart(reply: Reply) -> None:
    error = error_of(reply, url=URL)
    assert type(error) is errors.ServerError
    assert "not as a railsearch server does" in str(error)


def test_a_redirect_is_not_followed() -> None:
    reply = Reply(301, {"location": "https://elsewhere/"}, b"")
    assert "redirects to https://elsewhere/" in str(error_of(reply, url=URL))


@pytest.mark.parametrize("body", [b"[]", b"{", b"3", b"\xff"])
def test_a_success_must_be_an_object(body: bytes) -> None:
    with pytest.raises(errors.ServerError, match="not as a railsearch server does"):
        read_json(Reply(200, {"content-type": "application/json"}, body), url=URL)
