"""The gate: the outermost layer of the application, which refuses a request before its body is read.

In this order: size of the head, Host, draining, authentication, foreign sites, the queue, and then the body.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from railsearch.server.bodies import Bodies, ClientGoneError, Message, Receive
from railsearch.server.headers import page_headers, plain_headers
from railsearch.server.json_text import write_json
from railsearch.server.keys import Role
from railsearch.server.problems import MEDIA_TYPE, Problem, problem_of
from railsearch.server.service import Service
from railsearch.server.table import OTHER, Route, find_route, methods_of

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("railsearch.access")
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
INCOMING = "railsearch.incoming"
"""The name under which the application finds the body of a request."""
DISCARDED_BYTES, DISCARDED_SECONDS = 2**20, 1.0
"""How much of a refused body is read and discarded, so that the client gets to see the answer."""
SMALL_BODY_BYTES = 2**16
"""A client whose request of this size was refused for want of room keeps its connection."""
OPEN_WHILE_DRAINING = ("/healthz", "/readyz", "/metrics")


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """A request that has passed the gate."""

    body: bytes
    receive: Receive


class Gate:
    """A layer of ASGI around the application."""

    def __init__(self, application: Application, service: Service) -> None:
        self._application = application
        self._service = service
        self._bodies = Bodies(service.limits, service.settings.body_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        elif scope["type"] == "http":
            await _Exchange(self._application, self._service, self._bodies, (scope, receive, send)).run()
        else:
            await send({"type": "websocket.close", "code": 1000})


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, application: Application, service: Service, bodies: Bodies, call: tuple[Scope, Receive, Send]
    ) -> None:
        self._application = application
        self._service = service
        self._bodies = bodies
        self._scope, self._receive, self._send_raw = call
        scope = self._scope
        self._is_head = scope["method"] == "HEAD"
        self._route: Route = find_route(scope["method"], scope["path"])
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = self._headers.get("x-request-id", "")
        self._request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self._status = 0
        self._num_read = self._num_sent = 0

    async def run(self) -> None:
        """Answer, measure and log."""
        started = time.perf_counter()
        try:
            await self._answer()
        except ClientGoneError:
            self._status = 499  # as nginx logs it; it is not sent
        except Exception as error:
            problem = problem_of(error, self._service.names)
            if problem.name == "internal":
                logger.exception("request %s failed", self._request_id)
            if self._status:
                raise  # the answer has begun: the connection is closed
            await self._refuse(problem)
        finally:
            seconds = time.perf_counter() - started
            labels = (self._route.template, self._scope["method"], str(self._status))
            if self._route is OTHER and self._scope["method"] not in ("GET", "HEAD", "POST", "PUT"):
                labels = (self._route.template, "other", str(self._status))
            self._service.metrics.request_seconds.labels(*labels).observe(seconds)
            self._log(seconds)

    async def _answer(self) -> None:
        self._check_head()
        if self._answers_preflight():
            await self._send_empty(204)
            return
        self._check_role()
        self._check_site()
        self._check_route()
        if not self._route.is_queued:
            await self._pass_on()
            return
        self._service.check_load()
        self._service.num_under_way += 1
        try:
            await self._pass_on()
        finally:
            self._service.num_under_way -= 1

    async def _pass_on(self) -> None:
        """Read the body, and let the application answer."""
        body = b""
        if self._scope["method"] not in ("GET", "HEAD"):
            body = await self._bodies.read(self._headers, self._receive)
        self._num_read = len(body)
        try:
            incoming = Incoming(body, self._receive)
            method = "GET" if self._is_head else self._scope["method"]
            scope = {**self._scope, INCOMING: incoming, "method": method}
            await self._application(scope, self._receive, self._send)
        finally:
            self._bodies.release(len(body))

    def _check_head(self) -> None:
        size = len(self._scope.get("raw_path") or b"") + len(self._scope.get("query_string") or b"")
        size += sum(len(name) + len(value) for name, value in self._scope["headers"])
        largest = self._service.limits.max_header_bytes
        if size > largest:
            raise Problem(
                "headers-too-large",
                f"the head of the request has {size} bytes but this server allows at most {largest} "
                "(max_header_bytes); send shorter headers.",
                limit=("max_header_bytes", largest),
                closes=True,
            )
        hosts = [value for name, value in self._scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._service.hosts.knows(hosts[0].decode("latin-1")):
            raise Problem(
                "wrong-host", "Host does not name this server; start it with --allowed-host to add a name.", closes=True
            )
        if self._service.is_draining and self._scope["path"] not in OPEN_WHILE_DRAINING:
            raise Problem("draining", "the server stops; ask another one.", headers={"Retry-After": "1"}, closes=True)

    def _check_role(self) -> None:
        needed = self._route.role
        if needed is Role.NONE:
            return
        given = [value for name, value in self._scope["headers"] if name == b"authorization"]
        role = self._service.settings.keys.role_of(given[0] if len(given) == 1 else None)
        if role is Role.NONE:
            wants_page = "text/html" in self._headers.get("accept", "")
            schemes = 'Basic realm="railsearch", charset="UTF-8"' if wants_page else 'Bearer realm="railsearch"'
            raise Problem(
                "unauthorized",
                "a key is needed; send it as Authorization: Bearer KEY.",
                headers={"WWW-Authenticate": schemes},
                closes=True,
            )
        if role < needed:
            raise Problem("forbidden", "this key may only read; send a write key as Bearer token.", closes=True)

    def _check_route(self) -> None:
        """Refuse what is not in the table: the application compares paths in its own way, which must not decide."""
        if self._route is not OTHER:
            return
        method, path = self._scope["method"], self._scope["path"]
        methods, has_body = methods_of(path), method not in ("GET", "HEAD")
        if methods:
            detail, allow = f"{method:.16} is not a method of this route.", {"Allow": ", ".join(methods)}
            raise Problem("method-not-allowed", detail, headers=allow, closes=has_body)
        raise Problem("not-found", f"there is no route {path!r:.200}; see /docs.", closes=has_body)

    def _check_site(self) -> None:
        """Refuse changes that a page of another site asks for, even if it needs no permission to send them."""
        if self._scope["method"] in ("GET", "HEAD"):
            return
        origin = self._headers.get("origin")
        if origin is None or origin in self._service.settings.cors_origins:
            return
        if _place(origin) != self._headers.get("host", "").lower():
            raise Problem(
                "forbidden", "the request comes from another site; start with --cors-origin to allow it.", closes=True
            )

    def _answers_preflight(self) -> bool:
        origins = self._service.settings.cors_origins
        return self._scope["method"] == "OPTIONS" and self._headers.get("origin") in origins

    async def _send_empty(self, status: int) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": []})
        await self._send({"type": "http.response.body", "body": b""})

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message["headers"], *self._common_headers(message["headers"])]
        elif self._is_head:
            message = {**message, "body": b""}
        self._num_sent += len(message.get("body", b""))
        await self._send_raw(message)

    def _common_headers(self, given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        is_page = any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in given)
        headers = [*(page_headers() if is_page else plain_headers()), (b"x-request-id", self._request_id.encode())]
        if not any(name.lower() == b"cache-control" for name, _ in given):
            headers.append((b"cache-control", b"no-store"))
        origin = self._headers.get("origin")
        if origin is not None and origin in self._service.settings.cors_origins:
            headers += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-allow-methods", b"GET, POST, PUT"),
                (b"access-control-allow-headers", b"authorization, content-type, x-request-id"),
                (b"access-control-expose-headers", b"retry-after, x-request-id, location"),
                (b"access-control-max-age", b"600"),
                (b"vary", b"origin"),
            ]
        return headers

    async def _refuse(self, problem: Problem) -> None:
        self._service.metrics.rejected.labels(problem.name).inc()
        content = problem.to_json()
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in problem.headers.items()]
        headers += [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(content)).encode())]
        closes = problem.closes and not (problem.name == "queue-full" and self._has_small_body())
        if closes:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": content, "more_body": closes})
        if closes:
            if self._scope["method"] not in ("GET", "HEAD"):
                await self._discard()
            await self._send({"type": "http.response.body", "body": b""})

    def _has_small_body(self) -> bool:
        """Whether the body is so small that reading it costs less than a new connection."""
        length = self._headers.get("content-length", "")
        return length.isascii() and length.isdecimal() and int(length[:12]) <= SMALL_BODY_BYTES

    async def _discard(self) -> None:
        """Read a little of the rest: if unread data is left, the client may lose the answer to a reset."""
        num_left = DISCARDED_BYTES
        try:
            async with asyncio.timeout(DISCARDED_SECONDS):
                while num_left > 0:
                    message: Message = await self._receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
                    num_left -= len(message.get("body", b""))
        except TimeoutError:
            return

    def _log(self, seconds: float) -> None:
        """Log one line of JSON: nothing of the query, of the answer, or of the key."""
        if not access_logger.isEnabledFor(logging.INFO):
            return
        parts = self._scope["path"].split("/")
        index = parts[3] if self._route.template.startswith("/v1/indexes/{name}") else None
        client = self._scope.get("client")
        line = {
            "time": round(time.time(), 3),
            "request_id": self._request_id,
            "client": None if client is None else client[0],
            "method": self._scope["method"][:16],
            "route": self._route.template,
            "index": index if index in self._service.indexes else None,
            "status": self._status,
            "milliseconds": round(1000 * seconds, 3),
            "bytes_in": self._num_read,
            "bytes_out": self._num_sent,
        }
        access_logger.info(write_json(line).decode())


def _place(origin: str) -> str:
    """Return host and port of an Origin header; an empty text if it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
