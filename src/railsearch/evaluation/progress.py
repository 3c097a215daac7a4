"""A progress bar for long measurements: drawn on a terminal, silent in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def measuring(num_steps: int, *, is_shown: bool | None) -> Iterator[Callable[[str], None]]:
    """Give a function that counts one step and says what comes next; drawn on standard error."""
    bar = Progress(
        TextColumn("measuring {task.fields[step]:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (sys.stderr.isatty() if is_shown is None else is_shown),
    )
    task = bar.add_task("measure", total=num_steps, step="")
    with bar:
        yield lambda step: bar.update(task, advance=1, step=step)
