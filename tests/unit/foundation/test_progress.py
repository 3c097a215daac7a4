"""Progress of long work: a bar on request, and lines now and then without a terminal."""

import math

import pytest

from railsearch.foundation import progress
from railsearch.foundation.progress import ProgressMeter, counting, measuring


@pytest.fixture
def lines_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


@pytest.mark.usefixtures("lines_at_once")
def test_counting_writes_lines_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with counting("reading a[1] {x}.csv", 1500, is_shown=None) as count:
        count(1000)
        count(500)
    assert capfd.readouterr() == ("", "reading a[1] {x}.csv: 1,000 of 1,500\nreading a[1] {x}.csv: 1,500 of 1,500\n")
    with counting("indexing", None, is_shown=None) as count:
        count(1000)
    assert capfd.readouterr() == ("", "indexing: 1,000\n")


@pytest.mark.usefixtures("lines_at_once")
def test_parts_of_a_long_item_count(capfd: pytest.CaptureFixture[str]) -> None:
    with counting("encoding passages", 2, is_shown=None) as count:
        for _ in range(3):
            count(1 / 3)
        count(0.25)
    assert capfd.readouterr().err.splitlines() == [
        "encoding passages: 0 of 2 (17%)",
        "encoding passages: 0 of 2 (33%)",
        "encoding passages: 1 of 2",
        "encoding passages: 1 of 2 (62%)",
    ]


@pytest.mark.usefixtures("lines_at_once")
def test_measuring_writes_lines_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with measuring(2, is_shown=None) as step:
        step("TwoPass")
    assert capfd.readouterr() == ("", "measuring TwoPass: 1 of 2\n")


@pytest.mark.usefixtures("lines_at_once")
def test_notes_are_shown_with_a_bar_and_with_lines(capfd: pytest.CaptureFixture[str]) -> None:
    for is_shown, expected in ((True, True), (None, True), (False, False)):
        with ProgressMeter(total=3, is_shown=is_shown) as meter:
            meter.write_note("stopped [early]")
        out, err = capfd.readouterr()
        assert ("stopped [early]" in err) == expected
        assert not out


def test_false_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with counting("indexing", 2, is_shown=False) as count:
        count(2)
    assert capfd.readouterr() == ("", "")


def test_short_work_is_silent(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", math.inf)
    with counting("indexing", 2, is_shown=None) as count:
        count(2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("lines_at_once")
def test_true_draws_a_bar_and_no_lines(capfd: pytest.CaptureFixture[str]) -> None:
    with counting("reading a[1] {x}.csv", 2, is_shown=True) as count:
        count(2)
    out, err = capfd.readouterr()
    assert out == ""
    assert "reading a[1] {x}.csv" in err
    assert "2/2" in err
    assert "2 of 2" not in err
