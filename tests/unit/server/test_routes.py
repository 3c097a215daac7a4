"""Routes without a web framework: what a client that goes away leaves behind, and which types are accepted."""

import asyncio
import json
from pathlib import Path

import pytest

from railsearch.server import routes
from railsearch.server.exchange import Request
from railsearch.server.problems import Problem
from railsearch.server.service import ServerSettings, Service
from tests.support.served import make_index, make_queries

SEARCH = json.dumps({"embeddings": make_queries(1), "k": 3}).encode()


def make_request(body: bytes = SEARCH, leaves: asyncio.Event | None = None, **headers: str) -> Request:
    async def wait_for_disconnect() -> None:
        await (leaves or asyncio.Event()).wait()

    named = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
    return Request(body, named, {}, wait_for_disconnect)


def test_the_request_of_a_client_that_goes_away_is_dropped(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index", 20)
    service = Service([tmp_path / "movies.index"], settings=ServerSettings())
    service.indexes["movies"].open()
    service.is_ready = True  # but the queue does not answer yet

    async def run() -> list[object]:
        leaves = asyncio.Event()
        gone = asyncio.ensure_future(routes.search(service, make_request(leaves=leaves), "movies"))
        stays = asyncio.ensure_future(routes.search(service, make_request(), "movies"))
        while service.queue.depth < 2:
            await asyncio.sleep(0.001)
        leaves.set()
        for _ in range(50):  # turns of the event loop, not time
            await asyncio.sleep(0)
        service.queue.start()
        return await asyncio.gather(gone, stays, return_exceptions=True)

    dropped, answer = asyncio.run(run())
    assert isinstance(dropped, Problem)
    assert len(json.loads(answer.body)["results"]) == 1
    assert 'railsearch_batch_queries_sum{index="movies"} 1.0' in service.metrics.to_text().decode()
    service.close()


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", "a/json"), ("a/json", "a/json"), ("b/x", "b/x"), ("a/*", "a/json"), ("b/x, a/json;q=0.5", "b/x"),
        ("text/html, */*;q=0.1", "a/json"), ("a/json;q=0, b/x", "b/x"), ("", None), ("text/html", None),
        ("a/json;q=x", None), (";;,,", None),
    ],
)  # fmt: skip
def test_the_type_of_an_answer(accept: str, expected: str | None) -> None:
    request = make_request(accept=accept)
    if expected is None:
        with pytest.raises(Problem) as raised:
            request.accepts("a/json", "b/x")
        assert raised.value.status == 406
    else:
        assert request.accepts("a/json", "b/x") == expected


def test_an_index_that_is_not_open_is_loading(tmp_path: Path) -> None:
    service = Service([tmp_path / "movies.index"], settings=ServerSettings())
    with pytest.raises(Problem) as raised:
        asyncio.run(routes.search(service, make_request(), "movies"))
    assert (raised.value.name, raised.value.headers) == ("loading", {"Retry-After": "1"})
    with pytest.raises(Problem, match="there is no index 'other'; choose from: movies"):
        asyncio.run(routes.search(service, make_request(), "other"))
    service.close()
