"""A progress bar for long work over items: rate and time left on a terminal; silent in a pipe."""

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
    bar = Progress(
        TextColumn(work),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (sys.stderr.isatty() if is_shown is None else is_shown),
    )
    with bar:
        task = bar.add_task(work, total=total)
        yield lambda count: bar.advance(task, count)
