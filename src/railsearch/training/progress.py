"""A progress bar for training: loss, validation, rate and time left on a terminal; silent in a pipe."""

import math
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """Examples a second."""
        per_step = task.fields["examples_per_step"]
        return Text("" if task.speed is None else f"{task.speed * per_step:,.0f} {self._unit}/s")


class TrainingProgress:
    """Counts steps; drawn on standard error, so that a command's output stays clean."""

    def __init__(self, num_epochs: int, steps_per_epoch: int, *, unit: str, is_shown: bool | None) -> None:
        self._bar = Progress(
            TextColumn(f"epoch {{task.fields[epoch]}}/{num_epochs}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.3f}{task.fields[quality]}"),
            _Rate(unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not (sys.stderr.isatty() if is_shown is None else is_shown),
        )
        self._steps_per_epoch = steps_per_epoch
        self._task = self._bar.add_task(
            "train", total=num_epochs * steps_per_epoch, epoch=0, loss=math.nan, quality="", examples_per_step=0
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def resume(self, epoch: int, step: int, validation: dict[str, float] | None) -> None:
        """Count what an earlier run has done."""
        self._bar.update(self._task, completed=epoch * self._steps_per_epoch + step)
        self.finish_epoch(epoch, validation)

    def advance(self, loss: float, num_examples: int) -> None:
        """Count one step."""
        self._bar.update(self._task, advance=1, loss=loss, examples_per_step=num_examples)

    def finish_epoch(self, epoch: int, validation: dict[str, float] | None) -> None:
        """Show how many epochs are done, and the latest validation figures."""
        self._bar.update(self._task, epoch=epoch)
        if validation is not None:
            self._bar.update(self._task, quality=f"  HR@10 {validation['HR@10']:.4f}")
