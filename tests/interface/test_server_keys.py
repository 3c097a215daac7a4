"""Keys: every route without a key, with a read key and with a write key; and what a server refuses to start with."""

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from railsearch.server.keys import READ_VARIABLE, Role
from railsearch.server.table import ROUTES, Route
from tests.support.commands import run_main
from tests.support.served import Served, make_index, make_queries, serving

READ, WRITE, OTHER = "read-key-0123456789", "write-key-0123456789", "other-key-0123456789"
QUERIES = make_queries(1)
BODIES = {
    "search": {"embeddings": QUERIES, "k": 1},
    "explain": {"embeddings": QUERIES, "item_ids": [1]},
    "similar": {"item_ids": [7], "k": 1},
    "remove": {"ids": [10_000], "missing_ok": True},
    "tune": {"embeddings": QUERIES},
    "items": {"ids": [1], "embeddings": [[1.0]]},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("keys")
    make_index(folder / "movies.index")
    keys = folder / "keys.toml"
    keys.write_text(f'read = ["{READ}"]\nwrite = ["{WRITE}"]\n')
    keys.chmod(0o600)
    arguments = (folder / "movies.index", "--api-key-file", keys, "--writable", "--allowed-host", "search.example")
    with serving(*arguments, "--cors-origin", "https://shop.example") as served:
        yield served


def ask(served: Served, route: Route, **more: object) -> int:
    path = route.template.replace("{name}", "movies").replace("{id}", "7").replace("{job}", "none")
    body = BODIES.get(path.rsplit("/", 1)[-1], {}) if route.method != "GET" else None
    return served.ask(route.method, path.replace("{file}", "docs.css"), body, **more).status


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_the_table_of_allowed_and_refused(served: Served, route: Route) -> None:
    is_open = route.role is Role.NONE
    assert (ask(served, route) == 401) != is_open
    assert (ask(served, route, key=OTHER) == 401) != is_open
    with_read = ask(served, route, key=READ)
    assert with_read == 403 if route.role is Role.WRITE else with_read in (200, 404)
    with_write = ask(served, route, key=WRITE)
    assert with_write in (200, 202, 404, 409, 422)


def test_unknown_routes_need_a_key(served: Served) -> None:
    assert served.ask("GET", "/nothing").status == 401
    assert served.ask("GET", "/nothing", key=READ).status == 404
    assert served.ask("DELETE", "/v1/indexes/movies", key=WRITE).status == 405


@pytest.mark.parametrize("end", ["%0A", "/", "%20", "%00", ";", "%0D%0A"])
@pytest.mark.parametrize("route", [route for route in ROUTES if route.role is Role.WRITE], ids=lambda own: own.template)
def test_a_path_that_is_almost_a_route_is_none(served: Served, route: Route, end: str) -> None:
    path = route.template.replace("{name}", "movies") + end  # a regular expression that ends with $ accepts a newline
    reply = served.ask(route.method, path, BODIES.get(route.template.rsplit("/", 1)[-1], {}), key=READ)
    assert reply.status in (404, 405)
    assert served.ask(route.method, path, {}).status == 401


def test_a_refused_key_is_told_how_to_send_one(served: Served) -> None:
    reply = served.ask("GET", "/v1/indexes")
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert reply.headers["connection"] == "close"
    page = served.ask("GET", "/", headers={"Accept": "text/html"})
    assert page.headers["www-authenticate"].startswith("Basic")
    for key, status in ((READ, 200), (WRITE, 200), (OTHER, 401), ("", 401)):
        basic = {"Authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}
        assert served.ask("GET", "/v1/indexes", headers=basic).status == status
    basic = {"Authorization": "Basic " + base64.b64encode(f"me:{WRITE}".encode()).decode()}
    assert served.ask("POST", "/v1/indexes/movies/refresh", headers=basic).status == 403
    for wrong in ("Bearer", f"bearer  {READ}x", f"Digest {READ}", READ, f"Basic {READ}", "Bearer \xff"):
        assert served.ask("GET", "/v1/indexes", headers={"Authorization": wrong}).status == 401
    assert served.ask("GET", "/v1/indexes", headers={"Authorization": f"bearer  {READ}"}).status == 200


def test_keys_are_in_no_log(served: Served) -> None:
    served.ask("GET", "/v1/indexes", key=READ)
    served.ask("POST", "/v1/indexes/movies/search?secret=text", BODIES["search"], key=WRITE)
    line = '"route":"/v1/indexes/{name}/search","index":"movies","status":200'
    deadline = time.monotonic() + 60
    while line not in (log := served.log.read_text()):  # written after the answer has gone out
        assert time.monotonic() < deadline, log
        time.sleep(0.01)
    assert READ not in log
    assert WRITE not in log
    assert "secret" not in log


def test_names_and_origins(served: Served) -> None:
    assert served.ask("GET", "/healthz", headers={"Host": "search.example"}).status == 200
    assert served.ask("GET", "/healthz", headers={"Host": "other.example"}).status == 421
    shop, evil = {"Origin": "https://shop.example"}, {"Origin": "https://evil.example"}
    assert served.ask("POST", "/v1/indexes/movies/search", BODIES["search"], key=READ, headers=evil).status == 403
    for origin in ("http://[", "http://[::1", "null", "//"):
        own = {"Origin": origin}
        assert served.ask("POST", "/v1/indexes/movies/search", BODIES["search"], key=READ, headers=own).status == 403
    reply = served.ask("POST", "/v1/indexes/movies/search", BODIES["search"], key=READ, headers=shop)
    assert reply.headers["access-control-allow-origin"] == "https://shop.example"
    assert served.ask("OPTIONS", "/v1/indexes/movies/search", headers=shop).status == 204
    assert "access-control-allow-origin" not in served.ask("GET", "/healthz", headers=evil).headers
    own = {"Origin": served.url}
    assert served.ask("POST", "/v1/indexes/movies/search", BODIES["search"], key=READ, headers=own).status == 200


def test_every_answer_has_security_headers(served: Served) -> None:
    for reply in (
        served.ask("GET", "/healthz"),
        served.ask("GET", "/v1/indexes"),
        served.ask("GET", "/v1/indexes", key=READ),
        served.ask("GET", "/docs", key=READ),
        served.ask("GET", "/nothing", key=READ),
    ):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["cache-control"] == "no-store"
        assert "server" not in reply.headers
    chosen = served.ask("GET", "/healthz", headers={"X-Request-Id": "mine-1"})
    assert chosen.headers["x-request-id"] == "mine-1"
    assert served.ask("GET", "/healthz", headers={"X-Request-Id": "a b"}).headers["x-request-id"] != "a b"


def test_pages_and_head_requests(served: Served) -> None:
    style = served.ask("GET", "/explorer/docs.css", key=READ)
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert style.headers["cache-control"] == "no-cache"
    same = served.ask("GET", "/explorer/docs.css", key=READ, headers={"If-None-Match": style.headers["etag"]})
    assert (same.status, same.body) == (304, b"")
    head = served.ask("HEAD", "/v1/indexes", key=READ)
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) == len(served.ask("GET", "/v1/indexes", key=READ).body)
    described = served.ask("GET", "/openapi.json", key=READ).json
    paths = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    shown = {
        (route.method, route.template.replace("{id}", "{item_id}").replace("{job}", "{job_id}")) for route in ROUTES
    }
    assert paths == shown - {("GET", path) for path in ("/", "/docs", "/openapi.json", "/explorer/{file}")}
    page = served.ask("GET", "/docs", key=READ).body.decode()
    assert "POST /v1/indexes/{name}/search" in page
    assert "http" not in page.partition("<main>")[0]  # nothing is loaded from elsewhere


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Start a server in this process, which does not come so far; return its message."""
    assert run_main("serve", "--port", 0, *arguments) == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_server_that_would_be_unsafe_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, keys = tmp_path / "movies.index", tmp_path / "keys.toml"
    keys.write_text(f'read = ["{READ}"]\n')
    keys.chmod(0o644)
    assert "there are no keys; give --api-key-file" in refused(capsys, folder, "--host", "0.0.0.0")  # noqa: S104
    assert "can be read by other users (mode 644); run chmod 600" in refused(capsys, folder, "--api-key-file", keys)
    for origin in ("https://shop.example/", "*", "shop.example", "https://Shop.example"):
        assert "is not an origin; give scheme and host" in refused(capsys, folder, "--cors-origin", origin)
    (tmp_path / "a").mkdir()
    both = (tmp_path / "movies.index", tmp_path / "a" / "movies.index")
    assert "are both called 'movies'" in refused(capsys, *both)
    monkeypatch.setenv(READ_VARIABLE, "short")
    assert "a key has 5 characters" in refused(capsys, folder)


def test_a_missing_folder_ends_the_server(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "railsearch", "serve", "--port", "0", str(tmp_path / "missing.index")],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert completed.returncode == 2
    assert completed.stderr.startswith("error: ")
    assert "missing.index does not exist" in completed.stderr
    assert "Traceback" not in completed.stderr
