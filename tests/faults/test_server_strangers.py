"""A server among strangers: malformed requests, slow clients, huge bodies; good clients are served throughout."""

import contextlib
import json
import random
import select
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.served import DIM, PATIENCE, Served, make_index, make_queries, serving
from tests.support.trials import trials

QUERIES = make_queries(2)
GOOD = json.dumps({"embeddings": QUERIES, "k": 3}).encode()
SEARCH = b"/v1/indexes/movies/search"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("strangers")
    make_index(folder / "movies.index")
    make_index(folder / "strings.index", 50, has_keys=True)
    with serving(folder / "movies.index", folder / "strings.index", "--writable") as served:
        yield served


@pytest.fixture(autouse=True)
def _still_answers(served: Served) -> Iterator[None]:
    yield
    assert served.process.poll() is None
    assert served.search(embeddings=QUERIES, k=3).status == 200
    assert "Traceback" not in served.log.read_text()


def request_of(body: bytes, *, method: bytes = b"POST", path: bytes = SEARCH, headers: bytes = b"") -> bytes:
    return (
        method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: " + str(len(body)).encode() + b"\r\n" + headers + b"Connection: close\r\n\r\n" + body
    )


def exchange(served: Served, content: bytes, *, closes: bool = True, patience: float = 60.0) -> bytes:
    """Send bytes, and return everything that comes back."""
    with served.connect() as connection:
        connection.settimeout(patience)
        received = b""
        try:
            connection.sendall(content)
            if closes:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except (ConnectionError, TimeoutError):
            pass
        return received


def status_of(received: bytes) -> int:
    return int(received.split(b" ", 2)[1]) if received.startswith(b"HTTP/1.1 ") else 0


def random_value(choice: random.Random, depth: int = 0) -> object:
    """Return a value that a request may not expect."""
    kind = choice.randrange(14 if depth < 4 else 9)
    if kind >= 11:
        return {choice.choice(NAMES): random_value(choice, depth + 1) for _ in range(choice.randrange(4))}
    if kind >= 9:
        return [random_value(choice, depth + 1) for _ in range(choice.randrange(5))]
    texts = ["", "all", "é\u0000", "Average(-1)", "Average(999999999999999999)", "year >= 2000", "'", "\U0001f600" * 50]
    numbers = [0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 1e308, -0.0, 1e-320, 0.5, 3.0]
    return [None, True, False, choice.choice(texts), choice.choice(texts), *choice.choices(numbers, k=4)][kind]


NAMES = [
    "embeddings", "texts", "histories", "users", "k", "strategy", "allow", "exclude", "pad", "fields", "explain",
    "timeout_ms", "ids", "item_ids", "metadata", "missing_ok", "filter_viewed", "x", "__class__", "self", "",
]  # fmt: skip
PATHS = [
    SEARCH, SEARCH, SEARCH, b"/v1/indexes/strings/search", b"/v1/indexes/movies/explain",
    b"/v1/indexes/movies/items/remove", b"/v1/indexes/strings/items/remove", b"/v1/indexes/movies/items",
    b"/v1/indexes/movies/tune",
]  # fmt: skip

UNENDING = (0, 1, 2, 7)
"""Kinds of requests whose end the server may wait for; the client ends them."""


def malformed(choice: random.Random, kind: int) -> bytes:  # noqa: PLR0911
    """Return one request that is wrong in a random way; some are right by chance."""
    if kind == 0:
        return choice.randbytes(choice.randrange(1, 400))
    if kind == 1:  # a good request with random bytes changed
        content = bytearray(request_of(GOOD))
        for _ in range(choice.randrange(1, 6)):
            content[choice.randrange(len(content))] = choice.randrange(256)
        return bytes(content)
    if kind == 2:  # truncated
        content = request_of(GOOD)
        return content[: choice.randrange(1, len(content))]
    if kind == 3:  # deep, or unbalanced
        depth = choice.choice([10, 100, 1100, 100_000])
        return request_of(choice.choice([b"[", b'{"a":', b'{"embeddings":' + b"["]) * depth)
    if kind == 4:
        numbers = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1" * 5000, b"0x10", b"01", b"1.", b".5"]
        return request_of(b'{"embeddings": [[' + choice.choice(numbers) + b", 1]]}")
    if kind == 5:  # not UTF-8
        encodings = ["utf-16", "utf-32", "utf-8-sig", "cp037"]
        return request_of(json.dumps({"embeddings": QUERIES}).encode(choice.choice(encodings)))
    if kind == 6:  # safetensors that are none
        header = json.dumps(random_value(choice)).encode()
        size = choice.choice([len(header), 0, 7, 2**40, 2**64 - 1])
        body = struct.pack("<Q", size) + header + choice.randbytes(choice.randrange(50))
        return request_of(body).replace(b"application/json", b"application/x-safetensors")
    if kind == 7:
        headers = [
            b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Content-Encoding: gzip\r\n",
            b"Content-Length: 5\r\n", b"Accept: text/html\r\n", b"Accept: ,;q=x\r\n", b"Host: evil\r\n",
            b"Expect: 100-continue\r\n",
            b"Content-Type: \xff\r\n", b"Authorization: Basic !\r\n", b"Origin: http://evil\r\n",
            b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        ]  # fmt: skip
        return request_of(GOOD, headers=choice.choice(headers))
    if kind == 8:
        method = choice.choice(
            [b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD", b"TRACE", b"FOO", b"get", b""]
        )
        return request_of(b"", method=method, path=choice.choice([*PATHS, b"*", b"//", b"/%", b"/\xff", b"http://a/b"]))
    body = {choice.choice(NAMES): random_value(choice) for _ in range(choice.randrange(6))}
    if choice.random() < 0.6:
        body = {"embeddings": QUERIES, **body}
    method = choice.choice([b"POST", b"POST", b"PUT"])
    return request_of(json.dumps(body).encode(errors="replace"), method=method, path=choice.choice(PATHS))


def test_malformed_requests(served: Served, say: Callable[[str], None]) -> None:
    choice = random.Random(5)
    found = Counter[int]()
    for _ in range(trials(300, 20_000)):
        kind = choice.randrange(12)
        content = malformed(choice, kind)
        received = exchange(served, content, closes=kind in UNENDING)
        status = status_of(received)
        assert status < 500 or status in (503, 507), (content, received)
        if status >= 400 and not content.startswith(b"HEAD"):
            head, _, body = received.partition(b"\r\n\r\n")
            assert b"application/problem+json" in head, (content, received)
            assert json.loads(body)["status"] == status
            assert b"/tmp" not in body
            assert b"/dev/shm" not in body
        found[status] += 1
    assert found[200]
    assert found[400]
    assert found[422]
    counts = ", ".join(f"{count} x {status or 'closed'}" for status, count in sorted(found.items()))
    say(f"malformed requests: {found.total()} sent, 0 x 500, 0 crashes ({counts})")


@pytest.mark.slow
def test_slow_heads_are_cut_off_and_good_clients_served(tmp_path: Path, say: Callable[[str], None]) -> None:
    make_index(tmp_path / "movies.index")
    count = trials(30, 200)
    with serving(tmp_path / "movies.index", "--head-seconds", 2, "--body-seconds", 2) as served:
        slow = [served.connect() for _ in range(count)]
        try:
            for number, connection in enumerate(slow):
                if number % 3 == 0:
                    connection.sendall(b"POST " + SEARCH + b" HTTP/1.1\r\nHost: localhost\r\nX-A: ")
                elif number % 3 == 1:
                    connection.sendall(request_of(GOOD)[:-5])
            num_good, waiting, end = 0, set(slow), time.monotonic() + PATIENCE
            while waiting:
                assert time.monotonic() < end
                assert served.search(embeddings=QUERIES, k=3).status == 200
                num_good += 1
                waiting -= set(select.select(waiting, [], [], 0)[0])  # answered, or closed
                for connection in waiting.intersection(slow[::3]):
                    with contextlib.suppress(OSError):
                        connection.sendall(b"a")
            statuses = Counter(status_of(_drain(connection)) for connection in slow)
        finally:
            for connection in slow:
                connection.close()
        assert set(statuses) <= {0, 408}
        assert statuses[408] >= count // 2
        say(f"slow clients: {count} cut off, {num_good} good requests answered meanwhile")


def _drain(connection: socket.socket) -> bytes:
    connection.settimeout(PATIENCE)
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["fast", "plain"])
def test_large_heads(tmp_path: Path, implementation: str) -> None:
    make_index(tmp_path / "movies.index")
    environment = {"RAILSEARCH_HTTP": implementation}
    with serving(tmp_path / "movies.index", environment=environment) as served:
        assert served.search(embeddings=QUERIES, k=3).status == 200
        before = served.memory()
        for head in (b"X-A: " + b"a" * 50_000_000, b"X-A: b\r\n" * 10_000, b"a" * 3_000_000):
            received = exchange(served, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head, closes=False)
            assert status_of(received) in (400, 431, 0), received
        long = b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert status_of(exchange(served, long)) in (400, 431)
        assert served.memory() - before < 30 * 2**20
        assert served.search(embeddings=QUERIES, k=3).status == 200
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
        last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert exchange(served, whole + last, closes=False).count(b'{"status":"ok"}') == 3


def test_large_bodies_are_refused_without_being_kept(served: Served, say: Callable[[str], None]) -> None:
    size = trials(100, 300) * 10**6
    assert served.search(embeddings=QUERIES, k=3).status == 200
    before = served.memory()
    head = b"POST " + SEARCH + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    announced = head + b"Content-Length: " + str(size).encode() + b"\r\n\r\n"
    assert status_of(send_much(served, announced, b" " * 2**20, size)) == 413
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    assert status_of(send_much(served, head + b"Transfer-Encoding: chunked\r\n\r\n", chunk, size)) == 413
    bomb = zlib.compress(b" " * 10_000_000)
    packed = head + b"Content-Encoding: gzip\r\nContent-Length: " + str(len(bomb)).encode() + b"\r\n\r\n" + bomb
    assert status_of(exchange(served, packed)) == 415
    growth = served.memory() - before
    assert growth < 50 * 2**20  # a chunked body is kept until it passes the limit of 16 MB
    say(f"bodies of {size // 10**6} MB, announced and chunked, and a gzip bomb: refused, {growth / 2**20:.1f} MB more")


def send_much(served: Served, head: bytes, chunk: bytes, size: int) -> bytes:
    """Send a large body until the server has had enough; return its answer."""
    with served.connect() as connection:
        connection.sendall(head)
        try:
            for _ in range(size // len(chunk)):
                connection.sendall(chunk)
        except ConnectionError:
            pass
        return _drain(connection)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../movies",
        "..%2fmovies",
        "%2e%2e/movies",
        "movies%00",
        "movies/../strings",
        ".",
        "%2fetc%2fpasswd",
        "a" * 500,
    ],
)
def test_names_reach_no_other_folder(served: Served, name: str) -> None:
    for path in (f"/v1/indexes/{name}", f"/explorer/{name}", f"/v1/jobs/{name}"):
        received = exchange(served, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert status_of(received) in (400, 404), received
        assert b"root:" not in received


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]", 200), ("evil.example", 421), ("", 421)]
)
def test_foreign_names_are_refused(served: Served, host: str, status: int) -> None:
    received = exchange(served, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert status_of(received) == status


def test_limits_are_named(served: Served) -> None:
    for body, name in (
        ({"k": 1001}, "max_k"),
        ({"explain": 11}, "max_explained"),
        ({"timeout_ms": 60_001}, "max_timeout_ms"),
        ({"exclude": [list(range(10_001)), []]}, "max_excluded"),
        ({"allow": list(range(100_001))}, "max_allowed"),
        ({"embeddings": [[0.0] * DIM] * 257}, "max_queries"),
    ):
        reply = served.search(**{"embeddings": QUERIES, **body})
        assert (reply.status, reply.json["limit"]["name"]) == (422, name)
        assert name in reply.json["detail"]
