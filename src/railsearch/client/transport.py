"""HTTP by httpx, for programs with and without an event loop; every exchange keeps to one deadline.

The timeouts of httpx hold for each read and write, so a server that sends a byte now and then is never too late. Here
the seconds of an exchange are a total: without an event loop, each read and write gets what is left of them.
"""

import asyncio
import ssl
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, cast

from railsearch.client.conversation import Send
from railsearch.client.problems import Reply, timed_out, unreachable
from railsearch.foundation.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import httpcore
    import httpx

MAX_CONNECTIONS = 100
IDLE_SECONDS = 20.0
"""Idle connections are closed before the server closes them: it does so after 30 seconds."""
WRITE_BYTES = 1 << 18


class Wire:
    """Connections to one server, for threads."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        *,
        context: ssl.SSLContext | None,
        transport: "httpx.BaseTransport | None",
    ) -> None:
        self._httpx, self._httpcore = _import_httpx()
        self._url, self._headers = url, headers
        self._transport = transport or cast("httpx.BaseTransport", _TimedTransport(context or _default_context()))

    def send(self, step: Send) -> Reply:
        """Send a request and read the whole answer."""
        request = _build(self._httpx, self._url, self._headers, step)
        try:
            response = self._transport.handle_request(request)
            return _reply(response, response.read())
        except (self._httpx.TimeoutException, self._httpcore.TimeoutException) as error:
            raise timed_out(self._url, step.total) from error
        except (self._httpx.TransportError, self._httpcore.NetworkError, self._httpcore.ProtocolError) as error:
            raise unreachable(self._url, error) from error

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()


class AsyncWire:
    """Connections to one server, for an event loop of asyncio."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        *,
        context: ssl.SSLContext | None,
        transport: "httpx.AsyncBaseTransport | None",
    ) -> None:
        self._httpx, _ = _import_httpx()
        self._url, self._headers = url, headers
        limits = self._httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=IDLE_SECONDS)
        self._transport = transport or self._httpx.AsyncHTTPTransport(
            verify=context or _default_context(), limits=limits, trust_env=False
        )

    async def send(self, step: Send) -> Reply:
        """Send a request and read the whole answer."""
        request = _build(self._httpx, self._url, self._headers, step)
        try:
            async with asyncio.timeout(step.seconds):
                response = await self._transport.handle_async_request(request)
                try:
                    return _reply(response, await response.aread())
                finally:
                    await response.aclose()
        except (TimeoutError, self._httpx.TimeoutException) as error:
            raise timed_out(self._url, step.total) from error
        except self._httpx.TransportError as error:
            raise unreachable(self._url, error) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


class _TimedTransport:
    """A transport of httpx for threads whose reads and writes share the deadline of their request."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._httpx, self._httpcore = _import_httpx()
        self._deadline = threading.local()
        self._pool = self._httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=MAX_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=_TimedBackend(self._httpcore, self._seconds_left),
        )

    def handle_request(self, request: "httpx.Request") -> "httpx.Response":
        seconds = request.extensions["timeout"]["read"]
        self._deadline.at = time.monotonic() + seconds
        url = request.url
        answer = self._pool.handle_request(
            self._httpcore.Request(
                method=request.method,
                url=self._httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        try:
            content = b"".join(cast("Iterable[bytes]", answer.stream))
        finally:
            answer.close()
        return cast("httpx.Response", self._httpx.Response(answer.status, headers=answer.headers, content=content))

    def close(self) -> None:
        self._pool.close()

    def _seconds_left(self) -> float:
        left: float = self._deadline.at - time.monotonic()
        if left <= 0:
            raise self._httpcore.ReadTimeout("the time of the request is over")
        return left


class _TimedBackend:
    """A network backend of httpcore whose streams are timed."""

    def __init__(self, core: ModuleType, seconds_left: "Callable[[], float]") -> None:
        self._backend, self._seconds_left = core.SyncBackend(), seconds_left

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: object) -> "_TimedStream":
        stream = self._backend.connect_tcp(host, port, timeout=self._seconds_left(), **options)
        return _TimedStream(stream, self._seconds_left)


class _TimedStream:
    """A stream of httpcore that ignores given timeouts: each read and write gets the seconds that are left."""

    def __init__(self, stream: "httpcore.NetworkStream", seconds_left: "Callable[[], float]") -> None:
        self._stream, self._seconds_left = stream, seconds_left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=self._seconds_left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            self._stream.write(buffer[start : start + WRITE_BYTES], timeout=self._seconds_left())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_TimedStream":
        inner = self._stream.start_tls(ssl_context, server_hostname, timeout=self._seconds_left())
        return _TimedStream(inner, self._seconds_left)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _import_httpx() -> tuple[ModuleType, ModuleType]:
    try:
        import httpcore  # noqa: PLC0415
        import httpx  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra("httpx", "client") from error
    return httpx, httpcore


def _default_context() -> ssl.SSLContext:
    return cast("ssl.SSLContext", _import_httpx()[0].create_ssl_context())


def _build(library: ModuleType, url: str, headers: dict[str, str], step: Send) -> "httpx.Request":
    request, timeout = step.request, dict.fromkeys(("connect", "read", "write", "pool"), step.seconds)
    own = {"Accept": request.accept, "Accept-Encoding": "identity"}
    if request.content_type:
        own["Content-Type"] = request.content_type
    return cast(
        "httpx.Request",
        library.Request(
            request.method,
            url + request.path,
            headers={**headers, **own},
            content=request.body if request.method in {"POST", "PUT"} else None,
            extensions={"timeout": timeout},
        ),
    )


def _reply(response: "httpx.Response", body: bytes) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)
