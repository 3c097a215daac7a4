"""A real `railsearch serve` process on a free port, and plain ways to talk to it."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl
import torch

from railsearch import Index, MixtureOfLogits

DIM = 8
PATIENCE = 300.0
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Reply:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A server process."""

    process: subprocess.Popen
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Reply:
        """Send a request; a body that is not bytes is sent as JSON."""
        sent = dict(headers or {})
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, content, sent, method=method)  # noqa: S310
        try:
            with OPENER.open(request, timeout=PATIENCE) as answer:
                return Reply(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Reply(error.code, _lower(error.headers), error.read())

    def search(self, index: str = "movies", **body: object) -> Reply:
        return self.ask("POST", f"/v1/indexes/{index}/search", body)

    def connect(self) -> socket.socket:
        """Open a plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def memory(self) -> int:
        """Return the bytes that the process has in memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", text)[1])

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        text = self.ask("GET", "/metrics").body.decode()
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, flags=re.MULTILINE)
        return sum(map(float, values))

    def stop(self) -> int:
        """End the process as a supervisor does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextlib.contextmanager
def serving(*arguments: object, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Start a server, wait until it is ready, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = start(arguments, output, environment)
            try:
                yield _wait(process, log)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()


def start(arguments: tuple[object, ...], output: IO[bytes], environment: Mapping[str, str] | None) -> subprocess.Popen:
    """Start `railsearch serve` with arguments, on a free port."""
    return subprocess.Popen(
        [sys.executable, "-m", "railsearch", "serve", "--port", "0", *map(str, arguments)],
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )


def _wait(process: subprocess.Popen, log: Path) -> Served:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"at http://[^\s:]+:(\d+)/", log.read_text())
        if found is not None:
            served = Served(process, int(found[1]), log)
            with contextlib.suppress(OSError):
                if served.ask("GET", "/readyz").status == 200:
                    return served
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def make_index(path: Path, num_items: int = 200, *, has_keys: bool = False, seed: int = 0) -> Index:
    """Build a small index of a mixture, with metadata."""
    generator = torch.Generator().manual_seed(seed)
    mixture = MixtureOfLogits(
        query_dim=DIM, item_dim=DIM, num_query_components=2, num_item_components=3, component_dim=4
    )
    mixture.reset_parameters(generator)
    ids = [f"item/{item}" for item in range(num_items)] if has_keys else None
    table = pl.DataFrame(
        {
            "title": [f"Title {item}" for item in range(num_items)],
            "year": [1950 + item % 70 for item in range(num_items)],
        }
    )
    items = torch.randn(num_items, DIM, generator=generator)
    return Index.build(mixture.eval(), items, ids, path=path, metadata=table)


def make_queries(count: int, seed: int = 1) -> list[list[float]]:
    """Return query embeddings."""
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed)).tolist()
