"""uvicorn with our connections and a shutdown that answers everything and ends with exit code 0."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from railsearch.foundation.errors import StorageError
from railsearch.server.connections import HeadDeadline
from railsearch.server.gate import Gate
from railsearch.server.service import Service

VARIABLE = "RAILSEARCH_HTTP"


def make_protocol(*, head_seconds: float, largest_head: int) -> type[asyncio.Protocol]:
    """Return a protocol of uvicorn with our deadline: by httptools if it is installed, otherwise by h11.

    The environment variable RAILSEARCH_HTTP=plain chooses h11, which is slower and written in Python alone.
    """
    is_fast = importlib.util.find_spec("httptools") is not None and os.environ.get(VARIABLE) != "plain"
    base: type[asyncio.Protocol] = H11Protocol
    if is_fast:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415  (optional)

        base = HttpToolsProtocol
    members = {"head_seconds": head_seconds, "largest_head": largest_head}
    return type("Connection", (HeadDeadline, base), members)


class Server(uvicorn.Server):
    """A server that drains on SIGTERM and SIGINT: /readyz turns 503, what waits is answered, and the process ends."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_seconds: float) -> None:
        super().__init__(config)
        self._service = service
        self._drain_seconds = drain_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again at the end, as uvicorn does: the exit code is 0."""
        before = {own: signal.signal(own, self.handle_exit) for own in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for own, handler in before.items():
                signal.signal(own, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to drain; a second signal ends the wait."""
        if self._service.is_draining or self._drain_seconds <= 0:
            self.force_exit = self.should_exit
            self.should_exit = True
        self._service.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Stop once the time to drain is over; called ten times a second."""
        if self._service.failure is not None:
            self.should_exit = True
        if self._service.is_draining and not self.should_exit:
            self._drain_seconds -= 0.1
            self.should_exit = self._drain_seconds <= 0
        return await super().on_tick(counter)


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket, before anything is loaded; raises StorageError if the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets that name their protocol; with it, every answer on a kept
    # connection waits 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise StorageError(f"{host} port {port} cannot be used ({error.strerror}); choose another --port.") from error
    return listening


def run_server(
    app: Gate,
    service: Service,
    listening: socket.socket,
    *,
    head_seconds: float = 10.0,
    keep_alive_seconds: int = 30,
    shutdown_seconds: int = 60,
    drain_seconds: float = 0.0,
) -> None:
    """Serve until a signal comes."""
    protocol: Any = make_protocol(head_seconds=head_seconds, largest_head=service.limits.max_header_bytes)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=shutdown_seconds,
        backlog=1024,
        h11_max_incomplete_event_size=service.limits.max_header_bytes,
    )
    Server(config, service, drain_seconds).run(sockets=[listening])
