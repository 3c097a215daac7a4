"""The log of a training run: one JSON object a line, an epoch each."""

import dataclasses
import json
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from railsearch.files import new_file
from railsearch.training.report import EpochReport

LOG_FILE = "log.jsonl"


class TrainingLog:
    """Appends to log.jsonl; lines of epochs that a resumed run repeats are taken away first."""

    def __init__(self, folder: Path | None, *, num_lines: int) -> None:
        self._file = None if folder is None else folder / LOG_FILE
        self._num_lines = num_lines
        self._open: TextIO | None = None

    def __enter__(self) -> Self:
        if self._file is not None:
            kept = self._file.read_text().splitlines(keepends=True)[: self._num_lines] if self._file.is_file() else []
            with new_file(self._file) as written:
                written.write_text("".join(kept))
            self._open = self._file.open("a")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()

    def write(self, report: EpochReport, *, learning_rate: float) -> None:
        """Add one epoch."""
        if self._open is not None:
            self._open.write(json.dumps({**dataclasses.asdict(report), "learning_rate": learning_rate}) + "\n")
            self._open.flush()
