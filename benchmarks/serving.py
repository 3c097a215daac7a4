"""`railsearch serve` under load, over loopback: latency, throughput, batching, and overload. Markdown.

    python benchmarks/serving.py                            # everything, about four minutes
    python benchmarks/serving.py --only overload --seconds 10
    python benchmarks/serving.py --share 0.1 --seconds 2    # a tenth of the items, to see that it works

The server is a process of its own; this process sends requests of one query each (k = 100, Average(500), the ML-20M
shape) over connections that stay open. Both share the cores of this machine, so the figures include the work of the
clients. Everything is bounded in time and stops by itself.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor
from whole_search import DIM, SHAPES, make_similarity, quantile

from railsearch import Average, Index
from railsearch.benchmark.machine import describe_machine

NAME = "items"
SETTINGS = {"k": 100, "strategy": "Average(500)"}
CLIENTS = (1, 8, 64)
READY_SECONDS = 60.0
SAMPLE_SECONDS = 1.0
"""Time between two looks at the memory of the server."""


@dataclass(slots=True)
class Answers:
    """Latencies of answered requests, and how many answers had each status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry: int = 0
    """Refusals without Retry-After."""
    duration: float = 0.0

    @property
    def rate(self) -> float:
        """Answered searches per second."""
        return len(self.seconds) / self.duration

    def milliseconds(self, share: float) -> float:
        """Return a quantile of the latencies."""
        return 1e3 * quantile(self.seconds, share)


def main() -> None:
    options = read_arguments()
    print(f"{describe_machine()}\n")
    queries = torch.randn(256, DIM, generator=torch.Generator().manual_seed(1))  # (256, D)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}.index"
        items = torch.randn(int(SHAPES["ML-20M"][0] * options.share), DIM, generator=torch.Generator().manual_seed(0))
        Index.build(make_similarity("ML-20M"), items, path=path).close()
        with Index.open(path) as index:
            print(f"{len(index):,} items of 8 x 4 x 128; {SETTINGS}; {options.seconds:g} s each\n")
            library = measure_library(index, queries, options.seconds)
        if options.only in ("all", "latency"):
            latency(path, queries, library, options.seconds)
        if options.only in ("all", "batching"):
            batching(path, queries, options.seconds)
        if options.only in ("all", "overload"):
            overload(path, queries, options)


def measure_library(index: Index, queries: Tensor, seconds: float) -> list[float]:
    """Return the seconds of searches of one query, without a server."""
    found: list[float] = []
    end = time.perf_counter() + seconds + 1
    while (started := time.perf_counter()) < end:
        index.search(queries[len(found) % len(queries)][None], 100, Average(500))
        found.append(time.perf_counter() - started)
    return found[len(found) // 5 :]


def latency(path: Path, queries: Tensor, library: Sequence[float], seconds: float) -> None:
    """Print throughput and latency with 1, 8 and 64 clients, JSON and binary."""
    print("| clients | format | searches a second | p50, ms | p99, ms | above the library call, p50, ms |")
    print("|---|---|---|---|---|---|")
    own = 1e3 * statistics.median(library)
    print(f"| library call | | {1e3 / own:.0f} | {own:.2f} | {1e3 * quantile(library, 0.99):.2f} | |")
    with serving(path) as (_, port):
        for name, bodies in {"JSON": json_requests(queries), "safetensors": binary_requests(queries)}.items():
            for num_clients in CLIENTS:
                found = asyncio.run(closed_loop(port, bodies, num_clients, seconds))
                p50 = found.milliseconds(0.5)
                above = f"{p50 - own:.2f}" if num_clients == 1 else ""
                figures = f"{found.rate:.0f} | {p50:.2f} | {found.milliseconds(0.99):.2f}"
                print(f"| {num_clients} | {name} | {figures} | {above} |")
                check_all_answered(found)


def batching(path: Path, queries: Tensor, seconds: float) -> None:
    """Print throughput with 64 clients, in greedy batches and one by one."""
    print("\n| 64 clients, safetensors | searches a second | p50, ms | p99, ms |")
    print("|---|---|---|---|")
    for name, flags in {"greedy batches of up to 32": (), "one by one": ("--batch", "1")}.items():
        with serving(path, *flags) as (_, port):
            found = asyncio.run(closed_loop(port, binary_requests(queries), 64, seconds))
            print(f"| {name} | {found.rate:.0f} | {found.milliseconds(0.5):.2f} | {found.milliseconds(0.99):.2f} |")
            check_all_answered(found)


def overload(path: Path, queries: Tensor, options: argparse.Namespace) -> None:
    """Send requests at a fixed rate, twice what the server can answer, and print what happens to them."""
    bodies = binary_requests(queries)
    with serving(path) as (process, port):
        unloaded = asyncio.run(closed_loop(port, bodies, 1, options.seconds))
        capacity = asyncio.run(closed_loop(port, bodies, 64, options.seconds)).rate
        memory: list[float] = []
        rate = options.load * capacity
        found = asyncio.run(
            open_loop(port, bodies, rate, options.overload_seconds, lambda: memory.append(resident(process)))
        )
    refused, total = found.statuses[429], sum(found.statuses.values())
    others = {status: count for status, count in found.statuses.items() if status not in {200, 429}}
    p99, own = found.milliseconds(0.99), unloaded.milliseconds(0.99)
    print(
        f"\n| {options.overload_seconds:g} s at {options.load:g} x the capacity of {capacity:.0f} searches a second | |"
    )
    print("|---|---|")
    print(f"| requests sent | {total} |")
    print(f"| answered | {len(found.seconds)} ({found.rate:.0f} a second) |")
    print(f"| refused with 429 | {refused}, {found.without_retry} of them without Retry-After |")
    print(f"| other statuses, or lost connections (0) | {others or 'none'} |")
    print(f"| p50 / p99 of answered requests | {found.milliseconds(0.5):.1f} / {p99:.1f} ms |")
    print(f"| p99 without load (one client) | {own:.1f} ms; under load {p99 / own:.1f} x |")
    first, last = memory[len(memory) // 6], memory[-1]
    print(f"| memory of the server, MiB | {first:.0f} after a sixth of the time, {last:.0f} at the end |")


async def closed_loop(port: int, bodies: Sequence[bytes], num_clients: int, seconds: float) -> Answers:
    """Let each client send its next request when the last one was answered; a fifth of the time is warm-up."""
    answers = Answers()
    begin = time.perf_counter() + seconds / 4
    end = begin + seconds

    async def client(number: int) -> None:
        connection = await Connection.open(port)
        turn = number
        while time.perf_counter() < end:
            started = time.perf_counter()
            status, _ = await connection.send(bodies[turn % len(bodies)])
            turn += num_clients
            if started >= begin:
                answers.statuses[status] += 1
                if status == 200:
                    answers.seconds.append(time.perf_counter() - started)
        connection.close()

    await asyncio.gather(*(client(number) for number in range(num_clients)))
    answers.duration = seconds
    return answers


async def open_loop(
    port: int, bodies: Sequence[bytes], rate: float, seconds: float, on_second: Callable[[], None]
) -> Answers:
    """Send requests at a fixed rate, whether earlier ones are answered or not. A latency counts from the plan."""
    answers = Answers(duration=seconds)
    idle: list[Connection] = []
    running: set[asyncio.Task[None]] = set()

    async def request(planned: float, body: bytes) -> None:
        connection = None
        try:
            connection = idle.pop() if idle else await Connection.open(port)
            status, headers = await connection.send(body)
        except (OSError, asyncio.IncompleteReadError):
            answers.statuses[0] += 1
            return
        answers.statuses[status] += 1
        if status == 200:
            answers.seconds.append(time.perf_counter() - planned)
        else:
            answers.without_retry += b"retry-after:" not in headers
        if b"connection: close" in headers:
            connection.close()
        else:
            idle.append(connection)

    started, sent, looked = time.perf_counter(), 0, 0.0
    while (now := time.perf_counter() - started) < seconds:
        for number in range(sent, int(now * rate)):
            task = asyncio.ensure_future(request(started + number / rate, bodies[number % len(bodies)]))
            running.add(task)
            task.add_done_callback(running.discard)
            sent = number + 1
        if now >= looked:
            on_second()
            looked = now + SAMPLE_SECONDS
        await asyncio.sleep(0.002)
    await asyncio.wait_for(asyncio.gather(*running), 60)
    for connection in idle:
        connection.close()
    return answers


class Connection:
    """An HTTP connection that stays open: requests are ready bytes, answers are read and thrown away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect to a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request, and return the status and the headers, in lower case, of its answer."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length))
        return int(head.split(b" ", 2)[1]), head

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def json_requests(queries: Tensor) -> list[bytes]:
    """Return requests with one query each, answered in JSON."""
    bodies = [json.dumps({"embeddings": [query], **SETTINGS}).encode() for query in queries.tolist()]
    return [request(body, "application/json") for body in bodies]


def binary_requests(queries: Tensor) -> list[bytes]:
    """Return requests with one query each, as safetensors both ways."""
    metadata = {"settings": json.dumps(SETTINGS)}
    bodies = [save({"embeddings": query[None].clone()}, metadata) for query in queries]
    return [request(body, "application/x-safetensors") for body in bodies]


def request(body: bytes, kind: str) -> bytes:
    head = (
        f"POST /v1/indexes/{NAME}/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nAccept: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def serving(path: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the server on a free port until the end of the block; yield its process and the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "railsearch", "serve", str(path), "--port", str(port), "--no-access-log", *flags]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"})  # noqa: S603
    try:
        asyncio.run(until_ready(process, port))
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(30) != 0:
            raise SystemExit(f"the server ended with exit code {process.returncode}.")


async def until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the server answers that it is ready."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            connection = await Connection.open(port)
            status, _ = await connection.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.close()
            if status == 200:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the server did not become ready.")


def resident(process: subprocess.Popen[bytes]) -> float:
    """Return the resident memory of a process in MiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def check_all_answered(found: Answers) -> None:
    if set(found.statuses) - {200, 429}:
        raise SystemExit(f"not every search was answered or refused: {dict(found.statuses)}.")
    if found.statuses[429]:
        print(f"({found.statuses[429]} of {sum(found.statuses.values())} requests were refused with 429)")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the items")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each closed loop")
    parser.add_argument("--overload-seconds", type=float, default=60.0)
    parser.add_argument("--load", type=float, default=2.0, help="times the capacity")
    parser.add_argument("--only", choices=["all", "latency", "batching", "overload"], default="all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
