"""The time of a search by stage: a stopwatch that costs almost nothing while it is not in use."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Stage(StrEnum):
    """A stage of a search."""

    FIRST_STAGE = "first_stage"
    """Cheap dot products that choose the items to score."""
    SCORING = "scoring"
    """phi of those items."""
    SELECTION = "selection"
    """Selection of the k best."""


@dataclass(slots=True)
class _Watch:
    """Seconds by stage, and whether one of them is being measured now."""

    seconds: dict[Stage, float] = field(default_factory=lambda: dict.fromkeys(Stage, 0.0))
    is_running: bool = False


_watch: ContextVar[_Watch | None] = ContextVar("railsearch_stopwatch", default=None)


def now() -> float:
    """Wait for the accelerator, if there is one, and return the seconds of a monotonic clock."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


@contextmanager
def stopwatch() -> Iterator[dict[Stage, float]]:
    """Measure the seconds of each stage until the end of the block, in this thread or task.

    A stage inside another counts for the outer one: a selection inside a first stage is part of the first stage.

    >>> @timed(Stage.SELECTION)
    ... def choose() -> int:
    ...     return 7
    >>> with stopwatch() as seconds:
    ...     chosen = choose()
    >>> seconds[Stage.SELECTION] > 0, seconds[Stage.SCORING]
    (True, 0.0)
    """
    watch = _Watch()
    token = _watch.set(watch)
    try:
        yield watch.seconds
    finally:
        _watch.reset(token)


def timed(stage: Stage) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function so that its time counts for this stage while a stopwatch runs."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def measured(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            watch = _watch.get()
            if watch is None or watch.is_running:
                return function(*args, **kwargs)
            watch.is_running = True
            started = now()
            try:
                return function(*args, **kwargs)
            finally:
                watch.seconds[stage] += now() - started
                watch.is_running = False

        return measured

    return decorate
