"""Progress of a training run: loss, validation, rate and time left on a terminal; else a line per epoch or minute."""

import math
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Task, TextColumn

from railsearch.foundation.progress import ProgressMeter, RateColumn
from railsearch.training.report import EpochReport

SECONDS_BETWEEN_STEP_LINES = 60.0
"""Without a terminal, an epoch that takes longer than this writes lines about its steps."""


class TrainingProgress:
    """The progress of a run in steps, shown on standard error."""

    def __init__(self, num_epochs: int, steps_per_epoch: int, *, metric: str, unit: str, is_shown: bool | None) -> None:
        self._num_epochs = num_epochs
        self._steps_per_epoch = steps_per_epoch
        self._metric = metric
        self._meter = ProgressMeter(
            TextColumn(f"epoch {{task.fields[epoch]}}/{num_epochs}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.3f}{task.fields[quality]}"),
            RateColumn(unit),
            total=num_epochs * steps_per_epoch,
            is_shown=is_shown,
            fields={"epoch": 0, "loss": math.nan, "quality": "", "per_step": 0},
        )

    def __enter__(self) -> Self:
        self._meter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.__exit__(kind, error, trace)

    def resume(self, epoch: int, step: int, validation: dict[str, float] | None) -> None:
        """Count the steps of an interrupted run, and show its last validation."""
        self._meter.update(
            {"epoch": epoch, **self._quality(validation)}, completed=epoch * self._steps_per_epoch + step
        )
        if epoch or step:
            steps = f" and {step:,} of {self._steps_per_epoch:,} steps" * bool(step)
            self._meter.write_note(f"continued from a checkpoint: {epoch} of {self._num_epochs} epochs{steps} are done")

    def advance(self, loss: float, num_examples: int) -> None:
        """Count one step; without a bar, a long epoch writes a line from time to time."""
        self._meter.update({"loss": loss, "per_step": num_examples}, advance=1)
        self._meter.write_line(lambda task: f"{self._place(task)}  loss {loss:.3f}", seconds=SECONDS_BETWEEN_STEP_LINES)

    def finish_epoch(self, report: EpochReport) -> None:
        """Show a finished epoch, and its validation if there was one."""
        quality = self._quality(report.validation)
        self._meter.update({"epoch": report.epoch, **quality})
        self._meter.write_line(
            lambda _: (
                f"epoch {report.epoch}/{self._num_epochs}{_loss(report)}{quality.get('quality', '')}  "
                f"{report.seconds + report.validation_seconds:.0f} s"
            ),
            seconds=0,
        )

    def end_first_phase(self, best_epoch: int) -> None:
        """Say that patience ended the first phase of a run, such as the epochs as a cosine."""
        self._meter.write_note(
            f"first phase ended early (training.patience): going on from epoch {best_epoch}, the best"
        )

    def stop_early(self, patience: int | None, best_epoch: int) -> None:
        """Say that patience ended the run."""
        self._meter.write_note(
            f"stopped early (training.patience is {patience}): no validation since epoch {best_epoch} was better"
        )

    def _place(self, task: Task) -> str:
        """Return the epoch and the step that are done."""
        epoch, step = divmod(int(task.completed) - 1, self._steps_per_epoch)
        return f"epoch {epoch + 1}/{self._num_epochs}, step {step + 1:,} of {self._steps_per_epoch:,}"

    def _quality(self, validation: dict[str, float] | None) -> dict[str, str]:
        """Return the field that shows validation figures; empty if there are none, so that the last ones stay."""
        if validation is None:
            return {}
        names = dict.fromkeys(("HR@10", self._metric))
        return {"quality": "".join(f"  {name} {validation[name]:.4f}" for name in names if name in validation)}


def _loss(report: EpochReport) -> str:
    return "" if report.loss is None else f"  loss {report.loss:.3f}"
