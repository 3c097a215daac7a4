"""Bodies: bounded in size, in time, and in sum; and threads that do not take more than they can do."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from railsearch.server.bodies import SMALL_BYTES, Bodies, ClientGoneError
from railsearch.server.limits import Limits
from railsearch.server.problems import Problem
from railsearch.server.service import ServerSettings, Service
from tests.support.served import make_index

LIMITS = Limits(max_body_bytes=10)
LARGE = b"a" * (SMALL_BYTES + 1)


def messages(chunks: Iterable[bytes], *, is_complete: bool = True):
    """Return a receive function; without completion it waits forever at the end."""
    pending = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if is_complete and pending:
        pending[-1]["more_body"] = False

    async def receive() -> dict:
        if not pending:
            await asyncio.sleep(60)
        return pending.pop(0)

    return receive


def read(bodies: Bodies, chunks: Iterable[bytes], *, is_complete: bool = True, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(bodies.read(named, messages(chunks, is_complete=is_complete)))


def test_a_body_is_joined() -> None:
    bodies = Bodies(LIMITS, 5)
    assert read(bodies, [b"ab", b"", b"cd"]) == b"abcd"
    assert read(bodies, [b"abcdefghij"], content_length="10") == b"abcdefghij"


@pytest.mark.parametrize("length", ["11", "9" * 30, "00000000000000000000000000000000000011"])
def test_a_large_body_is_refused_before_it_is_read(length: str) -> None:
    with pytest.raises(Problem) as raised:
        read(Bodies(LIMITS, 5), [], content_length=length)
    assert (raised.value.status, raised.value.limit, raised.value.closes) == (413, ("max_body_bytes", 10), True)


def test_a_large_body_without_length_is_refused_in_time() -> None:
    with pytest.raises(Problem, match="max_body_bytes"):
        read(Bodies(LIMITS, 5), [b"abcdef", b"ghijkl"], is_complete=False)


def test_compression_is_refused() -> None:
    for encoding in ("gzip", "br", "identity, gzip"):
        with pytest.raises(Problem) as raised:
            read(Bodies(LIMITS, 5), [b"a"], content_encoding=encoding)
        assert raised.value.status == 415
    assert read(Bodies(LIMITS, 5), [b"a"], content_encoding="identity") == b"a"


def test_a_slow_body_is_refused() -> None:
    bodies = Bodies(Limits(max_buffered_bytes=len(LARGE) + 10), 0.05)
    with pytest.raises(Problem) as raised:
        read(bodies, [LARGE], is_complete=False)
    assert (raised.value.status, raised.value.closes) == (408, True)
    assert read(bodies, [LARGE]) == LARGE  # the refused one is no longer counted


def test_all_bodies_together_are_bounded() -> None:
    bodies = Bodies(Limits(max_buffered_bytes=len(LARGE) + 10), 5)
    read(bodies, [LARGE])
    for chunks in ([LARGE], [LARGE[:-1], b"a"]):
        with pytest.raises(Problem) as raised:
            read(bodies, chunks)
        assert (raised.value.name, raised.value.headers["Retry-After"]) == ("overloaded", "1")
    for _ in range(3):
        assert read(bodies, [b"a" * SMALL_BYTES])  # large ones do not shut out small ones
        bodies.release(SMALL_BYTES)
    bodies.release(len(LARGE))
    read(bodies, [LARGE])


def test_a_client_that_goes_is_noticed() -> None:
    async def receive() -> dict:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGoneError):
        asyncio.run(Bodies(LIMITS, 5).read({}, receive))


def test_work_beside_the_loop_is_bounded(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index", 10)
    service = Service([tmp_path / "movies.index"], settings=ServerSettings(limits=Limits(max_working=2)))
    release = threading.Event()

    async def crowd() -> list[object]:
        tasks = [asyncio.ensure_future(service.in_thread(release.wait, changes=bool(n % 2))) for n in range(4)]
        await asyncio.sleep(0.01)
        release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(crowd())
    assert found[:2] == [True, True]
    assert all(isinstance(refused, Problem) and refused.name == "overloaded" for refused in found[2:])
    service.close()


def test_an_index_must_have_a_name(tmp_path: Path) -> None:
    for name in (".index", "a b.index", "-x", "\u00e9", "a" * 65):
        with pytest.raises(ValueError, match="cannot name an index"):
            Service([tmp_path / name], settings=ServerSettings())
    with pytest.raises(ValueError, match="no index was given"):
        Service([], settings=ServerSettings())
