"""Progress of long work on standard error: a bar on a terminal, otherwise an occasional line."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0
"""Without a terminal, work that takes less than this stays silent, except for the epochs of training."""


class ProgressMeter:
    """A count of finished steps, shown on standard error so that a command's output stays clean."""

    def __init__(
        self,
        *columns: ProgressColumn,
        total: int | None,
        is_shown: bool | None,
        fields: Mapping[str, str | float] | None = None,
    ) -> None:
        """Store the layout of the bar; nothing is drawn before the meter is entered.

        Args:
            columns: the columns before and after the bar; `BarColumn()` among them is the bar itself.
            total: number of steps, if known.
            is_shown: True draws the bar, False shows nothing; None draws it on a terminal and writes lines elsewhere.
            fields: initial values of the fields that the columns show.
        """
        is_terminal = sys.stderr.isatty()
        self._has_bar = is_terminal if is_shown is None else is_shown
        self._console = Console(stderr=True)
        self._has_lines = is_shown is None and not is_terminal
        self._bar = Progress(
            *columns,
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._has_bar,
        )
        self._task = self._bar.add_task("", total=total)
        self._bar.tasks[0].fields.update(fields or {})
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self._has_bar:
            self._bar.start()
        self._last_line = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_bar:  # older versions of rich end a bar that was never drawn with an empty line
            self._bar.stop()

    def update(
        self,
        fields: Mapping[str, str | float] | None = None,
        *,
        completed: float | None = None,
        advance: int | None = None,
    ) -> None:
        """Set fields of the bar, and set or advance the number of finished steps."""
        self._bar.tasks[0].fields.update(fields or {})
        self._bar.update(self._task, completed=completed, advance=advance)

    def write_line(self, text: Callable[[Task], str], *, seconds: float | None = None) -> None:
        """Write a line if there is no bar and the last line is `seconds` old, by default `SECONDS_BETWEEN_LINES`."""
        least = SECONDS_BETWEEN_LINES if seconds is None else seconds
        if self._has_lines and time.monotonic() - self._last_line >= least:
            self._last_line = time.monotonic()
            line = text(self._bar.tasks[0])
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def write_note(self, text: str) -> None:
        """Write a line above the bar, or without a bar among the other lines; nothing if progress is not shown."""
        if self._has_bar or self._has_lines:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class RateColumn(ProgressColumn):
    """The speed of the work: steps per second, times the field `per_step` if there is one."""

    def __init__(self, unit: str = "") -> None:
        super().__init__()
        self._unit = f" {unit}" if unit else ""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        if task.speed is None:
            return Text("")
        return Text(f"{task.speed * task.fields.get('per_step', 1):,.0f}{self._unit}/s")


@contextlib.contextmanager
def counting(work: str, total: int | None, *, is_shown: bool | None) -> Iterator[Callable[[float], None]]:
    """Yield a function that adds to the number of finished items; it takes parts of a long item too."""
    work = "".join(character if character.isprintable() else "?" for character in work)  # it may hold a file's name
    columns = (TextColumn("{task.fields[work]}", markup=False), BarColumn(), MofNCompleteColumn(), RateColumn())

    def describe(task: Task) -> str:
        of_total = "" if task.total is None else f" of {task.total:,.0f}"
        is_within = not float(task.completed).is_integer()  # within a long item: the share moves on
        share = f" ({task.completed / task.total:.0%})" if is_within and task.total else ""
        return f"{work}: {math.floor(task.completed):,}{of_total}{share}"

    with ProgressMeter(*columns, total=total, is_shown=is_shown, fields={"work": work}) as meter:
        done = 0.0

        def count(items: float) -> None:
            nonlocal done
            done += items
            meter.update(completed=round(done, 6))  # the parts of an item add up to 1
            meter.write_line(describe)

        yield count


@contextlib.contextmanager
def measuring(num_steps: int, *, is_shown: bool | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that counts one step and shows its name."""
    columns = (TextColumn("measuring {task.fields[step]:<20}"), BarColumn(), MofNCompleteColumn())
    with ProgressMeter(*columns, total=num_steps, is_shown=is_shown, fields={"step": ""}) as meter:

        def count(step: str) -> None:
            meter.update({"step": step}, advance=1)
            meter.write_line(lambda task: f"measuring {step}: {task.completed:,.0f} of {num_steps:,}")

        yield count


def beside_a_bar(is_shown: bool | None) -> bool | None:
    """Return what to show of work within work that has a bar of its own: lines without a terminal, else nothing."""
    return None if is_shown is None and not sys.stderr.isatty() else False


def announce(text: str, *, is_shown: bool | None) -> None:
    """Write a line about the work that begins now on standard error, unless nothing shall be shown."""
    if is_shown is not False:
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
