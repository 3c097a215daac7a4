"""A server that is stopped, killed, or refreshed: nothing accepted is lost, and no answer mixes versions."""

import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import DotProduct, Index
from tests.support.served import DIM, PATIENCE, Served, make_index, make_queries, serving
from tests.support.trials import trials

QUERIES = make_queries(1)


def test_sigterm_answers_what_waits(tmp_path: Path, say: Callable[[str], None]) -> None:
    make_index(tmp_path / "movies.index", 60_000)
    count = trials(20, 50)
    # One query each: so many fit into the queue of the slowest server.
    body = json.dumps({"embeddings": QUERIES, "k": 5, "strategy": "BruteForce", "timeout_ms": 60_000}).encode()
    head = (
        "POST /v1/indexes/movies/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with serving(tmp_path / "movies.index") as served:
        connections = [served.connect() for _ in range(count)]
        for connection in connections:
            connection.sendall(head.encode())
        for connection in connections:  # a request whose body is asked for is accepted
            assert read_head(connection).startswith(b"HTTP/1.1 100 ")
        for connection in connections:
            connection.sendall(body)
        served.process.send_signal(signal.SIGTERM)
        answers = [read_all(connection) for connection in connections]
        assert served.process.wait(PATIENCE) == 0
    statuses = Counter(answer.split(b" ", 2)[1] for answer in answers)
    assert statuses == {b"200": count}, statuses
    assert all(json.loads(answer.partition(b"\r\n\r\n")[2])["results"] for answer in answers)
    say(f"SIGTERM during {count} searches: all answered, exit code 0")


def read_head(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        assert part, received
        received += part
    return received


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
        head, found, body = received.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            break
    connection.close()
    return received


def test_a_draining_server_says_so(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index")
    with serving(tmp_path / "movies.index", "--drain-seconds", 1000) as served:
        assert served.ask("GET", "/readyz").status == 200
        served.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        while (reply := served.ask("GET", "/readyz")).status != 503:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert reply.json["type"].endswith(":draining")
        refused = served.search(embeddings=QUERIES)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert served.ask("GET", "/healthz").status == 200
        assert served.stop() == 0  # a second signal ends the wait


@pytest.mark.slow
def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path: Path, say: Callable[[str], None]) -> None:
    folder = tmp_path / "changing.index"
    Index.build(DotProduct(dim=DIM), torch.zeros(1, DIM), [0], path=folder, metadata=pl.DataFrame({"title": ["0"]}))
    acknowledged, num_kills, next_id = 0, trials(2, 20), 1
    for trial in range(num_kills):
        with serving(folder, "--writable") as served:
            done: list[int] = []

            def write(served: Served = served, done: list[int] = done, first: int = next_id) -> None:
                item = first
                try:
                    while True:
                        row = {"ids": [item], "embeddings": [[float(item)] * DIM], "metadata": [{"title": str(item)}]}
                        if served.ask("POST", "/v1/indexes/changing/items", row).status == 200:
                            done.append(item)
                        item += 1
                except OSError:
                    pass

            writer = threading.Thread(target=write)
            writer.start()
            while len(done) < 3 + trial % 5:
                assert writer.is_alive()
                time.sleep(0.001)
            os.kill(served.process.pid, signal.SIGKILL)
            served.process.wait()
            writer.join()
        with Index.open(folder) as index:
            ids = set(index.ids.tolist())
            assert set(done) <= ids
            assert len(ids - set(done) - set(range(next_id))) <= 1  # the one that was not acknowledged
            assert index.verify().is_intact
            next_id = max(ids) + 2
        acknowledged += len(done)
    say(f"SIGKILL with a writer at work: {num_kills} kills, {acknowledged} changes acknowledged, 0 lost")


@pytest.mark.slow
def test_refreshes_under_load(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Every version has one more item, and its own score: an answer of k = 2 tells which version it came from."""
    folder = tmp_path / "changing.index"
    num_versions = trials(30, 1000)
    Index.build(DotProduct(dim=2), torch.tensor([[1.0, 0.0], [1.0, 0.5]]), [0, 1], path=folder).close()
    body = {"embeddings": [[1.0, 0.0], [1.0, 0.0]], "k": 2, "timeout_ms": 60_000}
    found = Counter[int]()
    stop = threading.Event()
    with serving(folder, "--watch", "0.1") as served:

        def load() -> None:
            last = 0
            while not stop.is_set():
                answer = served.search("changing", **body).json
                version = answer["index"]["version"]
                for result in answer["results"]:
                    scores = {hit["id"]: hit["score"] for hit in result["hits"]}
                    assert scores == {0: float(version), 1: float(version)}, answer
                assert version >= last
                last = version
                found[version] += 1

        with ThreadPoolExecutor(3) as pool, Index.open(folder) as writer:
            clients = [pool.submit(load) for _ in range(3)]
            for version in range(2, num_versions + 1):
                writer.upsert(torch.tensor([[float(version), 0.0], [float(version), 0.5]]), [0, 1])
                if version % 2:
                    reply = served.ask("POST", "/v1/indexes/changing/refresh").json
                    assert reply["version"] >= version
            stop.set()
            for client in clients:
                client.result()
        assert served.ask("POST", "/v1/indexes/changing/refresh").json["version"] == num_versions
        assert "WARNING" not in served.log.read_text()
    say(f"{num_versions} versions under load: {found.total()} answers of {len(found)} versions, each of exactly one")


def test_watch_follows_the_folder(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index", 50)
    with serving(tmp_path / "movies.index", "--watch", "0.1") as served, Index.open(tmp_path / "movies.index") as index:
        index.remove([1, 2])
        end = time.monotonic() + PATIENCE
        while served.ask("GET", "/v1/indexes/movies").json["items"] != 48:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert served.metric("railsearch_index_version") == 2


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["fast", "plain"])
def test_a_full_queue_refuses_with_retry_after(tmp_path: Path, implementation: str) -> None:
    make_index(tmp_path / "movies.index", 60_000)
    body = {"embeddings": make_queries(8), "k": 5, "strategy": "BruteForce", "timeout_ms": 60_000}  # fills the queue
    environment = {"RAILSEARCH_HTTP": implementation}
    with (
        serving(tmp_path / "movies.index", "--queue", 8, environment=environment) as served,
        ThreadPoolExecutor(24) as pool,
    ):
        replies = list(pool.map(lambda _: served.search(**body), range(48)))
        statuses = Counter(reply.status for reply in replies)
        assert set(statuses) == {200, 429}
        for reply in replies:
            if reply.status == 429:
                assert int(reply.headers["retry-after"]) >= 1
                assert reply.json["limit"] == {"name": "queue_queries", "value": 8}
        assert served.search(**{**body, "embeddings": make_queries(9)}).json["limit"]["name"] == "max_queries"
        assert served.metric("railsearch_rejected_total") >= statuses[429]
        assert served.metric("railsearch_queue_depth") == 0
