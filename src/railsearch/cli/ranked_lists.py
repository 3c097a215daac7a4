"""The ranked lists of `railsearch evaluate`: TREC files, and measures over all right passages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from railsearch.cli.terminal import visible
from railsearch.data import QuestionPassages
from railsearch.evaluation import Evaluation
from railsearch.evaluation.trec import check_ids, check_targets
from railsearch.foundation.errors import InvalidInputError

TREC_DEPTH = 1000
"""Length of the lists of a TREC run."""
MEASURED_DEPTH = 100
"""Length of the lists that measures over all right passages need."""

TrecFile = Annotated[
    Path | None,
    typer.Option("--trec", help="Write the ranked lists to this file, in the TREC run format.", show_default=False),
]
QrelsFile = Annotated[
    Path | None,
    typer.Option("--qrels", help="Write the right items to this file, in the TREC qrels format.", show_default=False),
]
Depth = Annotated[
    int | None,
    typer.Option("--depth", help="Length of the ranked lists. (default 1000 with --trec)", show_default=False, min=1),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the files of --trec and --qrels.")]


@dataclass(frozen=True, slots=True)
class RankedLists:
    """The files to write, and the length of the lists."""

    trec: Path | None
    qrels: Path | None
    depth: int | None
    overwrite: bool

    @property
    def files(self) -> list[Path]:
        """The files that are written."""
        return [file for file in (self.trec, self.qrels) if file is not None]

    def check(self, *, segments: bool) -> None:
        """Refuse files that cannot be written, before any work."""
        if segments and (self.files or self.depth is not None):
            raise InvalidInputError("--segments writes no ranked lists; omit it, or --trec, --qrels and --depth.")
        if len({file.resolve() for file in self.files}) < len(self.files):
            raise InvalidInputError(f"--trec and --qrels both name {self.trec}; give two files.")
        check_targets(self.files, overwrite=self.overwrite)

    def check_ids(self, data: QuestionPassages) -> None:
        """Refuse ids that the files cannot hold, before the passages are ranked."""
        if self.files:
            check_ids(data.passage_ids, "item")
            check_ids(() if data.test is None else data.test.ids, "query")

    def kept(self, *, is_text: bool) -> int:
        """Return how many items of each query the evaluation keeps; a text model needs some for its measures."""
        return self.depth or (TREC_DEPTH if self.files else MEASURED_DEPTH if is_text else 0)

    def write(self, evaluation: Evaluation) -> None:
        """Write the files."""
        if evaluation.run is None:
            return
        if self.trec is not None:
            evaluation.run.save(self.trec, overwrite=self.overwrite)
        if self.qrels is not None:
            evaluation.run.save_qrels(self.qrels, overwrite=self.overwrite)


def print_measures(measures: dict[str, float], console: Console) -> None:
    """Print measures over all right passages; nothing if there are none."""
    if not measures:
        return
    table = Table("over all right passages", "test", box=None)
    for name, value in measures.items():
        table.add_row(name, f"{value:.4f}")
    console.print(table)


def print_files(files: list[Path], console: Console) -> None:
    """Print the files that were written."""
    for file in files:
        console.print(f"written: {visible(file)}")
