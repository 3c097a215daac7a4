"""A progress bar for training: loss, validation and time left on a terminal; silent in a pipe."""

import math
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class TrainingProgress:
    """Counts steps; drawn on standard error, so that a command's output stays clean."""

    def __init__(self, num_steps: int, *, is_shown: bool | None) -> None:
        self._bar = Progress(
            TextColumn("{task.fields[epoch]} epochs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}{task.fields[quality]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not (sys.stderr.isatty() if is_shown is None else is_shown),
        )
        self._task = self._bar.add_task("train", total=num_steps, epoch=0, loss=math.nan, quality="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, loss: float) -> None:
        """Count one step."""
        self._bar.update(self._task, advance=1, loss=loss)

    def finish_epoch(self, epoch: int, validation: dict[str, float] | None) -> None:
        """Show how many epochs are done, and the latest validation figures."""
        quality = "" if validation is None else f"  HR@10 {validation['HR@10']:.3f}"
        self._bar.update(self._task, epoch=epoch, quality=quality)
