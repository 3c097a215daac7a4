"""Progress bars for long work: time left on a terminal; silent in a pipe."""

import contextlib
import sys
from collections.abc import Callable, Iterator

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


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Items a second."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextlib.contextmanager
def counting(work: str, total: int | None, *, is_shown: bool | None) -> Iterator[Callable[[int], None]]:
    """Give a function that counts items that are done; drawn on standard error, so that output stays clean."""
    with _bar(TextColumn(work), _Rate(), is_shown=is_shown) as bar:
        task = bar.add_task(work, total=total)
        yield lambda count: bar.advance(task, count)


@contextlib.contextmanager
def measuring(num_steps: int, *, is_shown: bool | None) -> Iterator[Callable[[str], None]]:
    """Give a function that counts one step and says what it was."""
    with _bar(TextColumn("measuring {task.fields[step]:<20}"), is_shown=is_shown) as bar:
        task = bar.add_task("measure", total=num_steps, step="")
        yield lambda step: bar.update(task, advance=1, step=step)


def _bar(title: ProgressColumn, *more: ProgressColumn, is_shown: bool | None) -> Progress:
    return Progress(
        title,
        BarColumn(),
        MofNCompleteColumn(),
        *more,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (sys.stderr.isatty() if is_shown is None else is_shown),
    )
