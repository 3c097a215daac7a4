"""Bodies of requests, read before the application sees them: bounded in size, in time, and in sum."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from railsearch.server.limits import Limits
from railsearch.server.problems import Problem

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SMALL_BYTES = 2**16
"""A body of this size is received even if there is no room: a few large and slow ones must not shut out searches."""


class ClientGoneError(Exception):
    """The client closed its connection, so no answer is sent."""


class Bodies:
    """All bodies that are in memory."""

    def __init__(self, limits: Limits, seconds: float) -> None:
        self._limits = limits
        self._seconds = seconds
        self._buffered = 0

    async def read(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """Read a whole body; raises Problem as soon as it is clear that it will not be accepted.

        Its size counts until `release` is called.
        """
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Problem(
                "unsupported-media-type",
                f"Content-Encoding is {encoding!r:.40}; send the body as it is, without compression.",
                closes=True,
            )
        announced = headers.get("content-length", "")
        if announced.isascii() and announced.isdigit():
            self._check(int(announced[:20]) if len(announced) <= 20 else 10**20)
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise ClientGoneError
                    chunk: bytes = message.get("body", b"")
                    size += len(chunk)
                    self._check(size)
                    self._reserve(len(chunk), is_small=size <= SMALL_BYTES)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except TimeoutError:
            self.release(sum(map(len, chunks)))
            raise Problem(
                "request-timeout",
                f"the body did not arrive within {self._seconds:g} seconds; send it faster, or in smaller requests.",
                closes=True,
            ) from None
        except BaseException:
            self.release(sum(map(len, chunks)))
            raise

    def release(self, size: int) -> None:
        """Give up a body of this size."""
        self._buffered -= size

    def _check(self, size: int) -> None:
        largest = self._limits.max_body_bytes
        if size > largest:
            raise Problem(
                "body-too-large",
                f"the body has {size} bytes or more but this server allows at most {largest} (max_body_bytes); send "
                "smaller requests.",
                limit=("max_body_bytes", largest),
                closes=True,
            )

    def _reserve(self, size: int, *, is_small: bool) -> None:
        if not is_small and self._buffered + size > self._limits.max_buffered_bytes:
            raise Problem(
                "overloaded",
                "too many large requests are being received; try again later.",
                limit=("max_buffered_bytes", self._limits.max_buffered_bytes),
                headers={"Retry-After": "1"},
                closes=True,
            )
        self._buffered += size
