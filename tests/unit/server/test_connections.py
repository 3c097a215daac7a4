"""Deadlines of connections, over a protocol that does nothing."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from railsearch.server.connections import HeadDeadline


class Transport:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.state = "open"

    def is_closing(self) -> bool:
        return self.state != "open"

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"


class Base:
    """A protocol whose requests end with a blank line."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.cycle = None
        self.received = b""
        self.flow = SimpleNamespace(pause_reading=lambda: setattr(self, "is_paused", True))
        self.is_paused = False

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.received.endswith(b"\r\n\r\n"):
            self.cycle = SimpleNamespace(response_complete=False, more_body=True)
            self.received = b""

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


class Connection(HeadDeadline, Base):
    head_seconds = 0.05
    answer_seconds = 0.05
    largest_head = 100


def connected() -> Connection:
    connection = Connection()
    connection.connection_made(Transport())
    return connection


def problem(connection: Connection) -> dict:
    return json.loads(connection.transport.written.partition(b"\r\n\r\n")[2])


async def wait_until_closed(connection: Connection) -> None:
    async with asyncio.timeout(30):
        while not connection.transport.is_closing():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_slow_head_is_cut_off(data: bytes) -> None:
    async def run() -> Connection:
        connection = connected()
        if data:
            connection.data_received(data)
        await wait_until_closed(connection)
        return connection

    connection = asyncio.run(run())
    assert connection.transport.state == "closed"
    assert problem(connection)["status"] == 408 if data else not connection.transport.written


def test_a_long_head_is_cut_off() -> None:
    async def run() -> Connection:
        connection = connected()
        connection.data_received(b"a" * 60)
        assert not connection.transport.is_closing()
        connection.data_received(b"a" * 60)
        connection.data_received(b"ignored")
        return connection

    assert problem(asyncio.run(run()))["limit"] == {"name": "max_header_bytes", "value": 100}


def test_a_complete_head_has_no_deadline_and_the_next_one_has() -> None:
    async def run() -> Connection:
        connection = connected()
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        connection.data_received(b"b" * 1000)  # a body
        await asyncio.sleep(0.2)
        assert not connection.transport.is_closing()
        connection.cycle.response_complete = True
        connection.received = b""
        connection.data_received(b"GET ")
        await wait_until_closed(connection)
        return connection

    assert problem(asyncio.run(run()))["status"] == 408


def test_a_head_that_comes_before_the_answer_waits() -> None:
    async def run() -> list[bool]:
        connection = connected()
        connection.data_received(b"POST / HTTP/1.1\r\n\r\n")
        connection.data_received(b"b" * 1000)  # a body
        paused = [connection.is_paused]
        connection.cycle.more_body = False
        connection.data_received(b"GET / HTTP/1.1\r\nX: " + b"a" * 1000)  # perhaps without end
        return [*paused, connection.is_paused]

    assert asyncio.run(run()) == [False, True]


def test_an_answer_must_be_read() -> None:
    async def run() -> Connection:
        connection = connected()
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        connection.pause_writing()
        connection.resume_writing()
        await asyncio.sleep(0.2)
        assert not connection.transport.is_closing()
        connection.pause_writing()
        await wait_until_closed(connection)
        connection.connection_lost(None)
        return connection

    assert asyncio.run(run()).transport.state == "aborted"


def test_bytes_that_are_not_http() -> None:
    async def run() -> Connection:
        connection = connected()
        connection.send_400_response("Invalid HTTP request received.")
        return connection

    assert problem(asyncio.run(run()))["type"].endswith(":malformed-request")
