"""The log of a training run: one JSON object for each epoch in log.jsonl, and curves for TensorBoard on request."""

import dataclasses
import json
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from railsearch.foundation.extras import missing_extra
from railsearch.foundation.files import new_file
from railsearch.training.report import EpochReport

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

LOG_FILE = "log.jsonl"
CURVES_FOLDER = "tensorboard"


class TrainingLog:
    """A writer that appends to log.jsonl; on entry it removes the lines of epochs that a resumed run repeats."""

    def __init__(self, folder: Path | None, *, num_lines: int, has_curves: bool = False) -> None:
        self._folder = folder
        self._num_lines = num_lines
        self._has_curves = has_curves
        self._lines: TextIO | None = None
        self._curves: SummaryWriter | None = None

    def __enter__(self) -> Self:
        if self._folder is None:
            return self
        file = self._folder / LOG_FILE
        kept = file.read_text().splitlines(keepends=True)[: self._num_lines] if file.is_file() else []
        with new_file(file) as written:
            written.write_text("".join(kept))
        self._lines = file.open("a")
        if self._has_curves:
            writer = import_tensorboard()
            self._curves = writer(str(self._folder / CURVES_FOLDER), purge_step=self._num_lines)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lines is not None:
            self._lines.close()
        if self._curves is not None:
            self._curves.close()

    def write(self, report: EpochReport, *, learning_rate: float) -> None:
        """Write one epoch."""
        values = {**dataclasses.asdict(report), "learning_rate": learning_rate}
        if self._lines is not None:
            self._lines.write(json.dumps(values) + "\n")
            self._lines.flush()
        if self._curves is not None:
            metrics = {f"validation/{name}": value for name, value in (values.pop("validation") or {}).items()}
            for name, value in {**values, **metrics}.items():
                if name != "epoch" and value is not None:
                    self._curves.add_scalar(name, value, report.epoch)
            self._curves.flush()


def import_tensorboard() -> "type[SummaryWriter]":
    """Import and return the class that writes TensorBoard files."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (optional: imported only on request)
    except ImportError as error:
        raise missing_extra("tensorboard", "train") from error
    return SummaryWriter
