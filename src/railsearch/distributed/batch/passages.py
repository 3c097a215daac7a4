"""Encode every passage of a file in parts, and build an index from the parts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from railsearch.data.passages.passage_parts import PassageParts
from railsearch.distributed.batch.job import ROWS_PER_PART, Compute, InputFile, Stated
from railsearch.distributed.batch.parts import PartsFolder, as_output, check_output
from railsearch.distributed.batch.runners import Runner
from railsearch.distributed.batch.running import JobReport, run_job
from railsearch.foundation.errors import FingerprintError, InvalidInputError
from railsearch.foundation.inputs import as_path
from railsearch.foundation.results import ItemBatch
from railsearch.index import Index, Precision, ScanPrecision
from railsearch.text_retriever import TextRetriever
from railsearch.text_retriever.passages import PASSAGES_PER_BATCH, EncodedPassages, encode_table

if TYPE_CHECKING:
    from polars import DataFrame


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """Components of every passage of a file, with ids and texts."""

    kind: ClassVar[str] = "encode"
    passages: PassageParts
    file: InputFile
    model: Path
    fingerprint: str

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return self.passages.num_parts

    def stated(self) -> Stated:
        """Return everything that determines the output."""
        return {
            **self.file.stated("passages"),
            "model": self.fingerprint,
            "passages_per_part": self.passages.passages_per_part,
        }

    def places(self) -> dict[str, str]:
        """Return the paths of passages and model."""
        return {"passages": str(self.file.path), "model": str(self.model)}

    def open(self) -> Compute:
        """Load the model, and return the function that encodes the passages of a part."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)
        import torch  # noqa: PLC0415

        model = self.load().model

        def compute(part: int) -> "DataFrame":
            texts = self.passages.read(part)
            self.file.check()
            given = list(texts.values())
            pieces = [
                encode_table(model, given[first : first + PASSAGES_PER_BATCH])
                for first in range(0, len(given), PASSAGES_PER_BATCH)
            ]
            components = torch.cat([own for own, _ in pieces]).flatten(start_dim=1)  # (n, Px * d)
            table = pl.concat([table for _, table in pieces])
            return table.with_columns(pl.Series("id", list(texts)), pl.Series("embedding", components.numpy()))

        return compute

    def load(self) -> TextRetriever:
        """Load the model, and refuse another one than the one that the job started with."""
        retriever = TextRetriever.load(self.model)
        if retriever.fingerprint != self.fingerprint:
            raise FingerprintError(
                f"{self.model} holds {retriever.fingerprint} but the job started with {self.fingerprint}; put the "
                "model back, or start the job again with other parts."
            )
        return retriever


def build_passages_index(
    model: str | Path,
    passages: str | Path,
    index: str | Path,
    *,
    parts: str | Path | None = None,
    precision: Precision | str = Precision.FP32,
    scan: ScanPrecision | str = ScanPrecision.FULL,
    passages_per_part: int = ROWS_PER_PART,
    runner: Runner | None = None,
    show_progress: bool | None = None,
) -> tuple[Index, JobReport]:
    """Encode the passages of a file in parts, and build an index from them as a stream.

    The index is the one that `TextRetriever.build_index` builds from the same passages. If the call is interrupted, a
    second one encodes only the parts that are missing. The parts are removed when the index is complete.

    Args:
        model: folder of a text retriever.
        passages: a file of JSON lines, as for `read_passage_texts`; not packed.
        index: a folder to create, which must not exist.
        parts: the folder for the parts; by default the name of the index with `.parts` after it.
        precision: as in `TextRetriever.build_index`.
        scan: as in `TextRetriever.build_index`.
        passages_per_part: passages in each part.
        runner: encodes the parts, such as `RayRunner()`; by default this process, one after the other.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    target = as_path(index)
    if target.exists():
        raise InvalidInputError(f"{index} already exists; open it with open_index, or choose another path.")
    folder = as_output(target.with_name(f"{target.name}.parts") if parts is None else parts)
    check_output(folder)
    retriever = TextRetriever.load(model)
    file = InputFile.describe(passages)
    job = EncodeJob(
        passages=PassageParts.cut(passages, passages_per_part=passages_per_part, show_progress=show_progress),
        file=file,
        model=as_path(model),
        fingerprint=retriever.fingerprint,
    )

    def build(encoded: PartsFolder) -> None:
        stream = EncodedPassages(_batches(encoded, retriever), job.passages.num_passages)
        retriever.build_index(stream, target, precision=precision, scan=scan, show_progress=show_progress)
        encoded.remove()

    report = run_job(job, folder, runner=runner, on_complete=build, show_progress=show_progress)
    assert retriever.index is not None
    return retriever.index, report


def _batches(folder: PartsFolder, retriever: TextRetriever) -> Iterator[ItemBatch]:
    """Yield encoded passages in the batches in which `TextRetriever.build_index` encodes them."""
    shape = retriever.model.similarity.item_shape
    for part in range(folder.num_parts):
        frame = folder.read(part)
        for batch in frame.iter_slices(PASSAGES_PER_BATCH):
            components = batch["embedding"].to_numpy().reshape(len(batch), *shape)
            yield ItemBatch(components, batch["id"].to_list(), batch.drop("id", "embedding"))
