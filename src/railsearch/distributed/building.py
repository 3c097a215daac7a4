"""Build a split index directly from a stream of items: one pass over the stream for each shard.

A pass reads all items, but computes the item side only of those that belong to its shard. So passes can run at the same
time, in other processes too, and each holds no more in memory than one segment and one batch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from railsearch.distributed.assignment import shards_of_ids
from railsearch.distributed.batches import Rows
from railsearch.distributed.layout import SIMILARITY, shard_name
from railsearch.distributed.split_folder import (
    IndexSettings,
    check_target,
    finish,
    finished_shard,
    run_jobs,
    splitting,
    write_shard,
)
from railsearch.folders import load_similarity
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice, as_path
from railsearch.foundation.results import ItemBatch
from railsearch.index import Precision, ScanPrecision
from railsearch.index.building import SegmentBuilder, prepare_similarity
from railsearch.index.metadata import Metadata
from railsearch.index.numbering import Numbering, SeenIds
from railsearch.index.segment import Segment
from railsearch.kernels import plain_arithmetic
from railsearch.similarity import Similarity, check_similarity, fingerprint

Stream: TypeAlias = Callable[[], Iterable[ItemBatch]]
"""A function that returns the same batches each time; to run in other processes, it must be one that can be sent."""


@dataclass(frozen=True, slots=True)
class ShardBuild:
    """The job to build one shard; it can be sent to another process that sees the same folder."""

    path: Path
    """The folder of the split index, which holds the similarity already."""
    number: int
    num_shards: int
    stream: Stream
    settings: IndexSettings

    @plain_arithmetic()
    def __call__(self) -> None:
        """Build the shard, unless it is complete already."""
        if finished_shard(self.path, self.number, None):
            return
        similarity = prepare_similarity(load_similarity(self.path / SIMILARITY))
        precision = Precision(self.settings.precision)
        builder = SegmentBuilder(
            similarity,
            dtype=None if precision is Precision.FP32 else precision.dtype,
            models=self.settings.models,
            on_rows=lambda _: None,
        )
        numbers: dict[str, int] = {}
        own = _OwnItems(self, similarity, numbers)
        seen = SeenIds([], "give every item its own id")
        segments = builder.build(
            iter(own), None, None, rows_per_segment=builder.rows_per_segment, numbering=Numbering(numbers=numbers)
        )
        kept = (_without_items(segment) if own.is_empty else seen.add(segment) for segment in segments)
        write_shard(self.path, self.number, similarity, self.settings, kept)


class _OwnItems:
    """The items of a stream that belong to one shard, batch by batch."""

    def __init__(self, job: ShardBuild, similarity: Similarity, numbers: dict[str, int]) -> None:
        self._job = job
        self._similarity = similarity
        self._numbers = numbers
        """The integers of the string ids in the batch that was yielded last: items are numbered across all shards."""
        self.is_empty = False
        """Whether no item belongs to the shard; one was yielded all the same, to show the form of the others."""

    def __iter__(self) -> Iterator[ItemBatch]:
        example, first_row, is_empty, has_ids = None, 0, True, None
        for batch in self._job.stream():
            rows = Rows.check(batch, self._similarity)
            if has_ids is not None and has_ids != (rows.ids is not None):
                raise InvalidInputError(
                    f"the batch of items from row {first_row} on differs in having ids; give ids in all or in none."
                )
            has_ids = rows.ids is not None
            ids = torch.arange(first_row, first_row + len(rows)) if rows.ids is None else rows.ids
            own = (shards_of_ids(ids, self._job.num_shards) == self._job.number).nonzero().flatten()  # (m,)
            if example is None:
                example = self._numbered(rows, ids, torch.zeros(1, dtype=torch.int64), first_row)
            if len(own):
                is_empty = False
                yield self._numbered(rows, ids, own, first_row)
            first_row += len(rows)
        if example is None:
            raise InvalidInputError("items holds no batch; give at least 1 item.")
        if is_empty:
            self.is_empty = True
            yield example

    def _numbered(self, rows: Rows, ids: Tensor | list[str], own: Tensor, first_row: int) -> ItemBatch:
        batch = rows.batch(ids, own)
        if isinstance(ids, list):
            self._numbers |= {ids[row]: first_row + row for row in own.tolist()}
        return batch


@plain_arithmetic()
def build_shards(
    similarity: Similarity,
    stream: Stream,
    path: str | Path,
    num_shards: int,
    *,
    precision: Precision | str = Precision.FP32,
    scan: ScanPrecision | str = ScanPrecision.FULL,
    source: Mapping[str, str] | None = None,
    name: str | None = None,
    run: Callable[[Iterable[ShardBuild]], None] = run_jobs,
) -> Path:
    """Build a split index from a stream that is read once for each shard; return its folder.

    The result is that of `shard_index` after `Index.build` of all items: the same ids, and the same order of ties.

    Args:
        similarity: compares queries and items.
        stream: returns the batches of all items, the same ones each time.
        path: the new folder.
        num_shards: the number of shards.
        precision: as in `Index.build`.
        scan: as in `Index.build`.
        source: as in `Index.build`.
        name: a name for the content of the stream, such as a file with its size and time. If a build is killed, a
            build with the same name keeps the shards that are complete; without a name it starts again.
        run: runs the builds, one for each shard; by default one after the other. `build_with(RayRunner())` of
            `railsearch.distributed.batch` runs them on Ray.
    """
    check_similarity(similarity)
    fingerprint(similarity)  # raises if it cannot be saved
    target = as_path(path)
    num_shards = check_target(target, num_shards)
    prepared = prepare_similarity(similarity)
    settings = IndexSettings(
        models=tuple(dict.fromkeys([fingerprint(prepared), fingerprint(similarity)])),
        precision=str(as_choice(Precision, precision, name="precision")),
        scan=str(as_choice(ScanPrecision, scan, name="scan")),
        source=dict(source or {}),
        tuned={},
    )
    plan = {"stream": name, "num_shards": num_shards, "precision": settings.precision, "scan": settings.scan}
    with splitting(target, prepared, plan, continues=name is not None):
        run([ShardBuild(target, number, num_shards, stream, settings) for number in range(num_shards)])
        missing = [number for number in range(num_shards) if not (target / shard_name(number)).is_dir()]
        if missing:
            raise InvalidInputError(f"shard {missing[0]} was not built ({len(missing)} of {num_shards}); run its job.")
        finish(target, num_shards, settings, by=None)
    return target


def _without_items(segment: Segment) -> Segment:
    """Return an empty segment of the same form."""
    metadata = None if segment.metadata is None else Metadata(segment.metadata.frame[:0])
    return Segment.build(segment.ids[:0], segment.parts[:0], metadata)
