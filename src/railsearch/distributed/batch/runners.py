"""Runners: ways to do numbered pieces of work, in this process or in others."""

from collections.abc import Callable, Sequence
from typing import Protocol


class Task(Protocol):
    """Numbered pieces of work; it can be sent to another process that sees the same folders."""

    def open(self) -> Callable[[int], int]:
        """Return the function that does one piece, and returns how many rows it has done; a process opens once."""
        ...

    def is_done(self, number: int) -> bool:
        """Return whether the result of a piece can be seen from this process."""
        ...


class Runner(Protocol):
    """A way to do pieces of work."""

    def run(self, task: Task, numbers: Sequence[int], on_done: Callable[[int], None]) -> None:
        """Do the pieces with these numbers, and report the number of rows of each as soon as it is done."""
        ...


class LocalRunner:
    """One piece at a time, in this process."""

    def run(self, task: Task, numbers: Sequence[int], on_done: Callable[[int], None]) -> None:
        """Do the pieces in their order."""
        do = task.open()
        for number in numbers:
            on_done(do(number))
