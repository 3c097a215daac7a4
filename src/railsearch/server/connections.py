"""Connections that must send a head and take an answer in time and in bounds, which uvicorn does not ask for.

A client that sends one byte of a header every few seconds keeps a connection of plain uvicorn open forever, a header
without end is kept in memory whole, and so is an answer that the client does not read.
"""

import asyncio
from typing import Any

from railsearch.server.headers import plain_headers
from railsearch.server.problems import MEDIA_TYPE, Problem

REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class HeadDeadline:
    """A layer over a protocol of uvicorn: from the first byte on, a head has a deadline and a largest size.

    An answer that does not fit into the buffers of the connection has a deadline too.
    Between two requests, uvicorn's own timeout of idle connections counts.
    """

    head_seconds: float = 10.0
    largest_head: int = 32 * 2**10
    answer_seconds: float = 60.0
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    flow: Any

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._head_size = 0
        self._cycle_before: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadline: a client that sends nothing is cut off too."""
        super().connection_made(transport)  # type: ignore[misc]
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadlines."""
        self._stop()
        self._stop_answer()
        super().connection_lost(exc)  # type: ignore[misc]

    def pause_writing(self) -> None:
        """Start the deadline of an answer: the client takes it more slowly than it is made."""
        super().pause_writing()  # type: ignore[misc]
        self._answer_timer = self.loop.call_later(self.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the deadline of an answer."""
        self._stop_answer()
        super().resume_writing()  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Count data until a head is complete."""
        if self.transport.is_closing():
            return
        is_between = self.cycle is None or self.cycle.response_complete
        if is_between and self._timer is None:
            self._cycle_before = self.cycle
            self._head_size = 0
            self._start()
        is_ahead = not is_between and not self.cycle.more_body
        super().data_received(data)  # type: ignore[misc]
        if is_ahead:  # a head, perhaps without end, while an answer is under way: uvicorn reads on after the answer
            self.flow.pause_reading()
        if self._timer is None:
            return
        if self.cycle is not self._cycle_before:
            self._cycle_before = None
            self._stop()
            return
        self._head_size += len(data)
        if self._head_size > self.largest_head:
            self._cut_off(
                Problem(
                    "headers-too-large",
                    f"the head of the request has more than {self.largest_head} bytes (max_header_bytes); send "
                    "shorter headers.",
                    limit=("max_header_bytes", self.largest_head),
                )
            )

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._cut_off(Problem("malformed-request", f"this is not a request of HTTP/1.1 ({msg.rstrip('.')})."))

    def _start(self) -> None:
        self._timer = self.loop.call_later(self.head_seconds, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_answer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _expire(self) -> None:
        self._timer = None
        if self._head_size:
            seconds = f"{self.head_seconds:g} seconds"
            self._cut_off(Problem("request-timeout", f"the head of the request did not arrive within {seconds}."))
        elif not self.transport.is_closing():
            self.transport.close()

    def _cut_off(self, problem: Problem) -> None:
        """Answer and close; only close if an answer to an earlier request is under way."""
        self._stop()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            content = problem.to_json()
            headers = [
                *plain_headers(),
                (b"content-type", MEDIA_TYPE.encode()),
                (b"content-length", str(len(content)).encode()),
                (b"cache-control", b"no-store"),
                (b"connection", b"close"),
            ]
            head = f"HTTP/1.1 {problem.status} {REASONS[problem.status]}\r\n".encode()
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            self.transport.write(head + lines + b"\r\n" + content)
        self.transport.close()
