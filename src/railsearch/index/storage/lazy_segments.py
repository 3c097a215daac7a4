"""Segments that are opened without reading their tensors: every block is checked before its first use."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from torch import Tensor

from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.files import FileEntry
from railsearch.foundation.inputs import is_finite
from railsearch.foundation.safe_files import open_inside
from railsearch.index.segment import Segment
from railsearch.index.storage.blocks import (
    CHECKSUMS,
    IDS,
    BlockChecks,
    SegmentFile,
    first_bytes,
    num_blocks,
    rows_per_block,
)
from railsearch.index.storage.manifest import SegmentEntry, segment_file
from railsearch.index.storage.segment_files import segment_of
from railsearch.index.storage.tensor_files import map_open, tensors_in
from railsearch.index.storage.validation import check_components, check_relations

logger = logging.getLogger(__name__)

ROWS_PER_STEP = 65_536


class Verify(StrEnum):
    """When the bytes of an index are checked."""

    FULL = "full"
    """All of them when it is opened."""
    LAZY = "lazy"
    """The large tensors block by block, each block before its first use; all others when the index is opened."""
    BACKGROUND = "background"
    """Like lazy; a thread also checks everything, in the order of storage."""


def open_lazily(
    folder: Path, entry: SegmentEntry, files: Mapping[str, FileEntry], bad: Callable[[Exception], IndexFolderError]
) -> Segment:
    """Map a segment that has a head, and check only the head; sizes were checked before.

    `bad` makes the error for values that match their checksum but cannot be used. Raises ValueError if the tensors are
    not those of a segment.
    """
    name = segment_file(entry.name)
    file = SegmentFile(open_inside(folder, name), folder / name)
    file.check_head(entry.head_size, entry.head_checksum)
    data = map_open(file.descriptor, name)  # (bytes,)
    tensors = tensors_in(data, name)
    places = {key: first_bytes(data, tensor) for key, tensor in tensors.items()}
    checksums = tensors.get(CHECKSUMS)
    if checksums is None or places[IDS] + tensors[IDS].nbytes != entry.head_size:
        raise ValueError(f"its head has {entry.head_size} bytes, which do not end with the ids")
    segment = segment_of(folder, entry, tensors, files)
    blocks = {key: tensor for key, tensor in tensors.items() if key not in {CHECKSUMS, IDS}}
    if tuple(checksums.shape) != (num_blocks(blocks, entry.block_bytes), 2) or places[CHECKSUMS] > places[IDS]:
        raise ValueError(f"it has checksums of shape {tuple(checksums.shape)}, which are not those of its blocks")
    checks = LazyChecks(
        segment,
        file=file,
        places=places,
        tensors=blocks,
        checksums=checksums,
        block_bytes=entry.block_bytes,
        bad=bad,
    )
    return segment.with_checks(checks)


class LazyChecks:
    """The checks of one segment; see `railsearch.index.segment.Checks`.

    A block is checked against its checksum, and its values as far as searches rely on them: they are finite, and no
    component is longer than the manifest states. Whether the sums are those of the components is known only after
    `check_all`; if they are not, searches by average choose worse candidates, but no certificate is wrong.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        file: SegmentFile,
        places: Mapping[str, int],
        tensors: Mapping[str, Tensor],
        checksums: Tensor,
        block_bytes: int,
        bad: Callable[[Exception], IndexFolderError],
    ) -> None:
        self._segment = segment
        self._bad = bad
        self._failure: str | None = None
        self._checking_all = threading.Lock()
        self._is_done = False
        self._blocks: dict[str, BlockChecks] = {}
        first = 0
        for name in sorted(tensors):
            rows = rows_per_block(tensors[name], block_bytes)
            count = num_blocks({name: tensors[name]}, block_bytes)
            self._blocks[name] = BlockChecks(
                file=file,
                first_byte=places[name],
                tensor=tensors[name],
                checksums=checksums[first : first + count],
                rows=rows,
                check_values=self._value_check(name),
            )
            first += count
        self._parts = [blocks for name, blocks in self._blocks.items() if name != "sums"]

    @property
    def has_checked_parts(self) -> bool:
        """Whether the parts of every row were checked."""
        return all(blocks.is_complete for blocks in self._parts)

    def check_parts(self, first: int, last: int) -> None:
        """Check the parts of the rows from first to last - 1."""

        def check() -> None:
            for blocks in self._parts:
                blocks.check_between(first, last)

        self._check(check)

    def check_rows(self, rows: Tensor) -> None:
        """Check the parts of some rows (n,)."""

        def check() -> None:
            for blocks in self._parts:
                blocks.check_rows(rows)

        self._check(check)

    def check_sums(self) -> None:
        """Check the sums of all rows."""
        self._check(lambda: self._blocks["sums"].check_between(0, len(self._segment)))

    def check_all(self) -> None:
        """Check everything, also that the sums are those of the components. Stops when the program ends."""
        with self._checking_all:
            for first in range(0, 0 if self._is_done else len(self._segment), ROWS_PER_STEP):
                if not threading.main_thread().is_alive():
                    return
                self.check_parts(first, min(first + ROWS_PER_STEP, len(self._segment)))
            self.check_sums()
            if not self._is_done:
                self._check(lambda: check_relations(self._segment))
                self._is_done = True

    def _check(self, work: Callable[[], object]) -> None:
        """Do a check; a segment that failed one fails all others too."""
        if self._failure is not None:
            raise IndexFolderError(self._failure)
        try:
            work()
        except IndexFolderError as error:
            self._failure = str(error)
            raise
        except ValueError as error:
            found = self._bad(error)
            self._failure = str(found)
            raise found from error

    def _value_check(self, name: str) -> Callable[[Tensor], None]:
        longest = self._segment.longest

        def check_finite(values: Tensor) -> None:
            if not is_finite(values):
                raise ValueError(f"its {name} has NaN or infinite values")

        return (lambda values: check_components(values, longest)) if name == "components" else check_finite


def check_in_background(segments: Sequence[Segment]) -> None:
    """Start a thread that checks segments completely. Damage is logged, and raised by the next use of the segment."""
    waiting = [segment.checks for segment in segments if segment.checks is not None]

    def check() -> None:
        for checks in waiting:
            try:
                checks.check_all()
            except IndexFolderError as error:
                logger.error("%s", error)
            except RuntimeError as error:
                if "shutdown" not in str(error):
                    raise
                return  # the program ends, and its workers are gone

    if waiting:
        threading.Thread(target=check, name="railsearch-checks").start()
