"""The stopwatch: the outermost stage owns the time, and nothing is measured unless a stopwatch runs."""

import pytest
import torch

from railsearch import Average, BruteForce, Index, PerComponent
from railsearch.data import make_shape
from railsearch.kernels import Stage, stopwatch, timed
from railsearch.kernels import stages as module


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that moves only when the test moves it."""
    time = [0.0]
    monkeypatch.setattr(module, "now", lambda: time[0])
    return time


def test_outermost_stage_owns_the_time(clock: list[float]) -> None:
    @timed(Stage.SELECTION)
    def select() -> None:
        clock[0] += 1.0

    @timed(Stage.FIRST_STAGE)
    def scan() -> None:
        clock[0] += 10.0
        select()

    with stopwatch() as seconds:
        scan()
        select()
        clock[0] += 100.0  # belongs to no stage
    assert seconds == {Stage.FIRST_STAGE: 11.0, Stage.SCORING: 0.0, Stage.SELECTION: 1.0}


def test_nothing_is_measured_without_a_stopwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> float:
        raise AssertionError("the clock was read")

    monkeypatch.setattr(module, "now", refuse)

    @timed(Stage.SCORING)
    def score(value: int, *, plus: int) -> int:
        """Add."""
        return value + plus

    assert score(1, plus=2) == 3
    assert score.__doc__ == "Add."


def test_an_error_ends_its_stage(clock: list[float]) -> None:
    @timed(Stage.SCORING)
    def fail() -> None:
        clock[0] += 2.0
        raise ZeroDivisionError

    @timed(Stage.SELECTION)
    def select() -> None:
        clock[0] += 1.0

    with stopwatch() as seconds:
        with pytest.raises(ZeroDivisionError):
            fail()
        select()
    assert (seconds[Stage.SCORING], seconds[Stage.SELECTION]) == (2.0, 1.0)


def test_stopwatches_nest_and_end(clock: list[float]) -> None:
    @timed(Stage.SCORING)
    def score() -> None:
        clock[0] += 1.0

    with stopwatch() as outer:
        score()
        with stopwatch() as inner:
            score()
        score()
    score()
    assert (outer[Stage.SCORING], inner[Stage.SCORING]) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("strategy", "has_first_stage"), [(BruteForce(), False), (Average(20), True), (PerComponent(5), True)]
)
def test_searches_are_measured(strategy: object, has_first_stage: bool) -> None:
    shape = make_shape("ml-20m", num_items=400, num_queries=2)
    index = Index.build(shape.similarity, shape.item_embeddings)
    plain = index.search(shape.query_components, 10, strategy)
    with stopwatch() as seconds:
        measured = index.search(shape.query_components, 10, strategy)
    assert torch.equal(plain.ids, measured.ids)
    assert seconds[Stage.SCORING] > 0
    assert seconds[Stage.SELECTION] > 0 or isinstance(strategy, BruteForce)  # a fused kernel selects while it scores
    assert (seconds[Stage.FIRST_STAGE] > 0) == has_first_stage
