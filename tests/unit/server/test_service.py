"""The service: when it is overloaded, and what does not stop it."""

import threading
from pathlib import Path

import pytest

from railsearch.server.problems import Problem
from railsearch.server.service import LATE_SECONDS, MANY_REQUESTS, ServerSettings, Service
from tests.support.served import make_index


def test_only_many_requests_make_a_late_event_loop_an_overload(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index")
    service = Service([tmp_path / "movies.index"], settings=ServerSettings())
    service._lateness = 2 * LATE_SECONDS  # as at the start, while the indexes are opened
    service.check_load()
    service.num_under_way = MANY_REQUESTS
    with pytest.raises(Problem, match="requests arrive faster than this server reads them") as raised:
        service.check_load()
    assert (raised.value.status, raised.value.headers["Retry-After"]) == (429, "1")
    service._lateness = 0.0
    service.check_load()


def test_a_fault_does_not_end_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(tmp_path / "movies.index", 20)
    service = Service([tmp_path / "movies.index"], settings=ServerSettings(watch_seconds=0.001))
    num_looks, has_looked_again = 0, threading.Event()

    def look() -> bool:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 1:
            raise KeyboardInterrupt("as a panic of polars, this is no Exception")
        has_looked_again.set()
        return False

    monkeypatch.setattr(service.indexes["movies"], "is_behind", look)
    service.open()
    assert has_looked_again.wait(60)
    service.close()
