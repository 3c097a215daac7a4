"""The service: when it is overloaded."""

from pathlib import Path

from railsearch.server.service import LATE_SECONDS, MANY_REQUESTS, ServerSettings, Service
from tests.support.served import make_index


def test_only_many_requests_make_a_late_event_loop_an_overload(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index")
    service = Service([tmp_path / "movies.index"], settings=ServerSettings())
    service._lateness = 2 * LATE_SECONDS  # as at the start, while the indexes are opened
    assert not service.is_overloaded
    service.num_under_way = MANY_REQUESTS
    assert service.is_overloaded
    service._lateness = 0.0
    assert not service.is_overloaded
