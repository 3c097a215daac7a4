"""Clients and what a real server cannot do on demand: silence, single bytes, other servers; and arguments."""

import asyncio
import contextlib
import inspect
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest

from railsearch.client import AsyncClient, Client
from railsearch.errors import (
    InvalidInputError,
    RailsearchError,
    ServerBusyError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from tests.support.clients import KINDS, AnyClient, Call, Kind, ask

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@contextlib.contextmanager
def serve(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve each connection with a function, in threads."""
    listener = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            answer(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def send_slowly(connection: socket.socket, data: bytes) -> None:
    connection.recv(65536)
    for byte in data:
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


def send_and_wait(connection: socket.socket, data: bytes) -> None:
    connection.recv(65536)
    connection.sendall(data)
    time.sleep(60)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: send_and_wait(connection, b""),
        lambda connection: send_and_wait(connection, HEAD + b"{"),
        lambda connection: send_slowly(connection, HEAD * 3),
        lambda connection: send_slowly(connection, HEAD[-40:] + b" " * 1000),
        lambda connection: time.sleep(60),
    ],
    ids=["silence", "half an answer", "slow headers", "slow body", "request not read"],
)
def test_a_timeout_is_the_total(kind: Kind, answer: Callable[[socket.socket], None]) -> None:
    body = np.zeros((64, 50_000), dtype="f4")  # more than the buffers of a connection hold
    with serve(answer) as url, pytest.raises(ServerTimeoutError):  # it closes after some seconds: another error
        ask(kind, url, lambda client: client.search("movies", body), timeout=0.4)


def test_a_timeout_names_the_time(kind: Kind) -> None:
    silence, message = lambda connection: send_and_wait(connection, b""), r"no answer within 0\.2 s"
    with serve(silence) as url, pytest.raises(ServerTimeoutError, match=message):
        ask(kind, url, lambda client: client.indexes(), timeout=0.2)


def test_a_server_that_is_down(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServerUnreachableError, match=r"cannot be reached .*railsearch serve"):
        ask(kind, url, lambda client: client.indexes())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ServerUnreachableError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ServerUnreachableError),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", ServerError),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ServerError),
    ],
    ids=["closed", "ssh", "a page", "another API"],
)
def test_not_a_railsearch_server(kind: Kind, data: bytes, error: type[RailsearchError]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)

    with serve(answer) as url, pytest.raises(error, match="check the address"):
        ask(kind, url, lambda client: client.indexes())


def test_retries_and_then_an_answer(kind: Kind) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) < 3:
            problem = {"type": "urn:railsearch:problem:queue-full", "detail": "full"}
            headers = {"Retry-After": "0", "Content-Type": "application/problem+json"}
            return httpx.Response(429, json=problem, headers=headers)
        return httpx.Response(200, json={"indexes": []})

    found = ask(kind, "http://server", lambda client: client.indexes(), transport=httpx.MockTransport(handler))
    assert found == []
    assert len(seen) == 3


def test_the_key_is_sent_and_never_shown(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = "s3cret-key"
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"indexes": []})

    def call(client: AnyClient) -> object:
        assert hidden not in repr(client)
        assert hidden not in str(vars(client))
        return client.indexes()

    transport = httpx.MockTransport(handler)
    ask(kind, "http://server", call, api_key=hidden, transport=transport)
    monkeypatch.setenv("RAILSEARCH_API_KEY", hidden)
    ask(kind, "http://server", call, transport=transport)
    ask(kind, "http://server", call, api_key="", transport=transport)
    assert seen == [f"Bearer {hidden}", f"Bearer {hidden}", None]
    with pytest.raises(InvalidInputError, match="api_key is no key") as caught:
        ask(kind, "http://server", call, api_key=f"{hidden}\r\nX-Evil: 1")
    assert hidden not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "", "movies", "ftp://server", "http://", "http://a:b@server", "http://server?k=1", "http://server:99999", 3,
        "http://a..b", f"http://{'a' * 64}.example", "http://server\x00", "http://server/\x7f",
    ],
)  # fmt: skip
def test_a_wrong_address_is_refused(kind: Kind, url: str) -> None:
    with pytest.raises(InvalidInputError, match="url") as caught:
        kind(url)
    assert "a:b" not in str(caught.value)


def test_wrong_arguments_are_refused_before_anything_is_sent(kind: Kind) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise AssertionError("a request was sent")

    calls: list[Call] = [
        lambda client: client.search("movies"),
        lambda client: client.search("", [[1.0]]),
        lambda client: client.search("movies", [[1.0]], texts=["a"]),
        lambda client: client.search("movies", texts="a"),
        lambda client: client.search("movies", [["a"]]),
        lambda client: client.search("movies", [[1.0]], exclude=[[1, "a"]]),
        lambda client: client.explain("movies", [1]),
        lambda client: client.explain("movies", [1], text="a", user=3),
        lambda client: client.explain("movies", [1], embedding=[float("nan")]),
        lambda client: client.add("movies"),
        lambda client: client.add("movies", [1.0]),
        lambda client: client.add("movies", [[1.0]], [1, 2]),
        lambda client: client.tune("movies"),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError):
            ask(kind, "http://server", call, transport=httpx.MockTransport(handler))
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="timeout"):
            kind("http://server", timeout=timeout)
        with pytest.raises(InvalidInputError, match="timeout"):
            ask(kind, "http://server", lambda client, own=timeout: client.search("movies", [[1.0]], timeout=own))
        with pytest.raises(InvalidInputError, match="timeout"):
            ask(kind, "http://server", lambda client, own=timeout: client.wait("job", timeout=own))
    for name, value in (("k", 2.5), ("k", "3"), ("k", True), ("explain", 1.5)):
        with pytest.raises(InvalidInputError, match=f"{name} is {value!r}; give a whole number"):
            ask(kind, "http://server", lambda client, own={name: value}: client.search("movies", [[1.0]], **own))


def test_an_event_loop_goes_on_while_large_requests_are_encoded() -> None:
    problem = {"type": "urn:railsearch:problem:draining", "detail": "bye"}
    transport = httpx.MockTransport(
        lambda _: httpx.Response(503, json=problem, headers={"Content-Type": "application/problem+json"})
    )
    threads = set()

    class Slow(list[list[float]]):
        def __iter__(self) -> Iterator[list[float]]:
            threads.add(threading.get_ident())
            return super().__iter__()

        def __array__(self, *_: object, **__: object) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
            threads.add(threading.get_ident())
            return np.zeros((len(self), 2000), dtype="f4")

    async def run() -> None:
        async with AsyncClient("http://server", transport=transport) as client:
            with pytest.raises(ServerBusyError, match="bye"):
                await client.search("movies", Slow([[0.0] * 2000] * 100))

    asyncio.run(run())
    assert threads
    assert threading.get_ident() not in threads


def test_both_clients_have_the_same_calls() -> None:
    calls = {name for name in vars(Client) if not name.startswith("_")}
    assert calls == {name for name in vars(AsyncClient) if not name.startswith("_")}
    for name in calls:
        own, other = inspect.signature(getattr(Client, name)), inspect.signature(getattr(AsyncClient, name))
        assert own == other
        assert "Call[" not in str(own.return_annotation)
        assert getattr(Client, name).__doc__


def test_importing_the_client_is_cheap() -> None:
    code = (
        "import sys, railsearch.client as c; c.Client; "
        "heavy = {'torch', 'polars', 'httpx', 'pydantic', 'safetensors'} & set(sys.modules); assert not heavy, heavy; "
        "c.Client(); assert 'torch' not in sys.modules"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
