"""`Client` and `AsyncClient`: the same calls of a railsearch server, without and with an event loop.

A call is written once, as steps (`conversation`); both classes perform these steps and add nothing of their own.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, get_args
from urllib.parse import urlsplit

import railsearch
from railsearch.client import calls, changes
from railsearch.client.conversation import Compute, Exchange, Link, Pause, checked_timeout
from railsearch.client.transport import AsyncWire, Wire
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "RAILSEARCH_API_KEY"
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _method(ask: Callable[Arguments, Exchange[Answer]]) -> "Callable[Concatenate[Client, Arguments], Answer]":
    """Return the method of `Client` that makes a call."""

    @wraps(ask)
    def method(self: "Client", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return self._run(ask(*args, **kwargs))

    return _with_self(method, ask)  # type: ignore[return-value]  # mypy tells a named `self` from a positional one


def _async_method(
    ask: Callable[Arguments, Exchange[Answer]],
) -> "Callable[Concatenate[AsyncClient, Arguments], Coroutine[None, None, Answer]]":
    """Return the method of `AsyncClient` that makes a call."""

    @wraps(ask)
    async def method(self: "AsyncClient", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return await self._run(ask(*args, **kwargs))

    return _with_self(method, ask)  # type: ignore[return-value]


Method = TypeVar("Method", bound=Callable[..., object])


def _with_self(method: Method, ask: Callable[..., object]) -> Method:
    """Give a method the signature of its call, for help() and editors."""
    known = signature(ask)
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *known.parameters.values()]
    answer = get_args(known.return_annotation)[0]  # of Call[...] or Exchange[...]
    method.__signature__ = known.replace(parameters=parameters, return_annotation=answer)  # type: ignore[attr-defined]
    return method


class Client:
    """A railsearch server, called from a program without an event loop; threads may share one.

    Every call takes at most `timeout` seconds, retries included. A request is repeated, at most twice, only if the
    server refused it because it is busy (429, 503), after the time that it asks for. Errors are those of
    `railsearch.errors`: the library's own for wrong input, `ServerError` and its kinds for the rest.

    Args:
        url: the address of the server, such as "http://127.0.0.1:8080".
        api_key: a key of the server; by default that of the environment variable RAILSEARCH_API_KEY, if there is one.
        timeout: seconds that a call may take in all.
        ssl_context: certificates to trust, for https; the usual ones by default.
        transport: a transport of httpx, to reach a server in another way; environment proxies are not used.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        address = _address(url, api_key, timeout)
        self._link = Link(address.url, timeout)
        self._wire = Wire(address.url, address.headers, context=ssl_context, transport=transport)

    search = _method(calls.search)
    explain = _method(calls.explain)
    similar_items = _method(calls.similar_items)
    item = _method(calls.item)
    find_items = _method(calls.find_items)
    indexes = _method(calls.indexes)
    describe = _method(calls.describe)
    jobs = _method(calls.jobs)
    job = _method(calls.job)
    add = _method(changes.add)
    upsert = _method(changes.upsert)
    remove = _method(changes.remove)
    refresh = _method(changes.refresh)
    compact = _method(changes.compact)
    tune = _method(changes.tune)
    wait = _method(changes.wait)

    def _run(self, exchange: Exchange[Answer]) -> Answer:
        steps = exchange.steps(self._link)
        value: object = None
        while True:
            try:
                step = steps.send(value)
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            if isinstance(step, Compute):
                value = step.function()
            elif isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                value = self._wire.send(step)

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._link.url!r})"


class AsyncClient:
    """A railsearch server, called from an event loop of asyncio; the calls are those of `Client`, to be awaited.

    The loop is never blocked: large requests and answers are encoded and decoded in a thread. The arguments are those
    of `Client`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        address = _address(url, api_key, timeout)
        self._link = Link(address.url, timeout)
        self._wire = AsyncWire(address.url, address.headers, context=ssl_context, transport=transport)

    search = _async_method(calls.search)
    explain = _async_method(calls.explain)
    similar_items = _async_method(calls.similar_items)
    item = _async_method(calls.item)
    find_items = _async_method(calls.find_items)
    indexes = _async_method(calls.indexes)
    describe = _async_method(calls.describe)
    jobs = _async_method(calls.jobs)
    job = _async_method(calls.job)
    add = _async_method(changes.add)
    upsert = _async_method(changes.upsert)
    remove = _async_method(changes.remove)
    refresh = _async_method(changes.refresh)
    compact = _async_method(changes.compact)
    tune = _async_method(changes.tune)
    wait = _async_method(changes.wait)

    async def _run(self, exchange: Exchange[Answer]) -> Answer:
        steps = exchange.steps(self._link)
        value: object = None
        while True:
            try:
                step = steps.send(value)
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            if isinstance(step, Compute):
                value = await asyncio.to_thread(step.function) if step.is_heavy else step.function()
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                value = await self._wire.send(step)

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._link.url!r})"


@dataclass(frozen=True, slots=True)
class _Address:
    url: str
    headers: dict[str, str]


def _address(url: str, api_key: str | None, timeout: float) -> _Address:
    """Check the arguments of a client. No message contains the key."""
    checked_timeout(timeout)
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
        is_usable = is_usable and url.isprintable() and bool((parts.hostname or "").encode("idna"))
    except (ValueError, TypeError, AttributeError):  # UnicodeError is a ValueError
        raise InvalidInputError("url is not an address; give one such as 'http://127.0.0.1:8080'.") from None
    if "@" in parts.netloc:
        raise InvalidInputError("url contains a user or password; give the key of the server as api_key.")
    if not is_usable or parts.query or parts.fragment:
        raise InvalidInputError(f"url is {url!r}; give an address such as 'http://127.0.0.1:8080'.")
    key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
    headers = {"User-Agent": f"railsearch/{railsearch.__version__}"}
    if key:
        if not key.isascii() or not key.isprintable() or " " in key:
            source = KEY_VARIABLE if api_key is None else "api_key"
            raise InvalidInputError(f"{source} is no key: it has spaces, line ends or letters that are not ASCII.")
        headers["Authorization"] = f"Bearer {key}"
    return _Address(url.rstrip("/"), headers)
