"""Problems: every error of the library has a status, and no path of the machine is in an answer."""

import json

import pytest

from railsearch import errors
from railsearch.errors import InvalidInputError
from railsearch.server.json_text import MOST_CONTAINERS, MalformedError, read_object, write_json
from railsearch.server.limits import LimitError, Limits
from railsearch.server.problems import TITLES, Problem, problem_of, without_paths

NAMES = {"/data/movies.index": "movies", "/data": "data"}


@pytest.mark.parametrize(
    ("error", "name", "status"),
    [
        (errors.InvalidInputError("a"), "invalid-input", 422),
        (errors.NotEnoughItemsError("a"), "not-enough-items", 422),
        (errors.IdExistsError("a"), "id-exists", 409),
        (errors.NotEnoughMemoryError("a"), "overloaded", 503),
        (errors.FingerprintError("a"), "fingerprint", 409),
        (errors.IndexRebuiltError("/x was rebuilt: index a is open"), "index-rebuilt", 409),
        (errors.IndexLockedError("/x is being changed by process 3 on host"), "index-locked", 409),
        (errors.StorageError("a"), "storage", 507),
        (errors.IndexFolderError("a"), "internal", 500),
        (errors.EngineError("a"), "internal", 500),
        (errors.TrainingError("a"), "internal", 500),
        (MalformedError("a"), "malformed-request", 400),
        (LimitError("max_k", 5, "a"), "limit-exceeded", 422),
        (KeyError("secret"), "internal", 500),
    ],
)
def test_errors_become_problems(error: Exception, name: str, status: int) -> None:
    problem = problem_of(error, NAMES)
    assert (problem.name, problem.status) == (name, status)
    body = json.loads(problem.to_json())
    assert body["type"] == f"urn:railsearch:problem:{name}"
    assert body["title"] == TITLES[name][1]
    assert "secret" not in str(body)
    assert "process" not in str(body)


def test_every_error_of_the_library_is_known_to_clients() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        found = problem_of(kind("message"))
        assert found.error is None or hasattr(errors, found.error)


def test_a_problem_is_itself() -> None:
    problem = Problem("not-found", "there is no index 'x'.")
    assert problem_of(problem) is problem


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("/data/movies.index was rebuilt", "movies was rebuilt"),
        ("see /data/movies.index/manifests/3.json now", "see movies/manifests/3.json now"),
        ("/home/me/secret.txt: no such file", "[path]: no such file"),
        ("open '/var/x y' now", "open '[path] y' now"),
        (r"C:\\Users\\me\\x is gone", "[path] is gone"),
        ("and/or 1/2 item/7 ok", "and/or 1/2 item/7 ok"),
        ("k is 5; ask for k <= 3.", "k is 5; ask for k <= 3."),
        ("~/x is there", "[path] is there"),
    ],
)
def test_paths_are_hidden(message: str, shown: str) -> None:
    assert without_paths(message, NAMES) == shown


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b'"a"',
        b"{",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"[" * 5000,
        b"\xff",
        b'{"a": 01}',
        b"{} {}",
    ],
)
def test_json_is_strict(content: bytes) -> None:
    with pytest.raises(MalformedError):
        read_object(content)


@pytest.mark.parametrize("part", [b"[],", b"{},", b"[[[["])
def test_json_of_many_small_lists_is_refused_before_it_is_read(part: bytes) -> None:
    content = b'{"embeddings": [' + part * MOST_CONTAINERS
    with pytest.raises(InvalidInputError, match="lists and objects but at most 1048576 are read"):
        read_object(content)


def test_json_has_no_infinity() -> None:
    assert json.loads(write_json({"a": [float("inf"), float("nan"), 1.5]})) == {"a": [None, None, 1.5]}


def test_limits_are_named() -> None:
    with pytest.raises(LimitError, match=r"k is 6 but this server allows at most 5 \(max_k\)") as raised:
        Limits(max_k=5).check("max_k", 6, "k")
    assert problem_of(raised.value).to_dict()["limit"] == {"name": "max_k", "value": 5}
