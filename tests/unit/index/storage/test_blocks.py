"""Blocks of a tensor in a file: which bytes are read for which rows, and how often."""

import os
from pathlib import Path

import pytest
import torch

from railsearch.errors import IndexFolderError
from railsearch.index.storage.blocks import BlockChecks, SegmentFile, block_checksums, num_blocks, rows_per_block

ROW_BYTES = 12
TENSOR = torch.arange(21, dtype=torch.float32).view(7, 3)
"""7 rows of 12 bytes."""


class Recorded(SegmentFile):
    """A file that remembers what was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(os.open(path, os.O_RDONLY), path)
        self.reads: list[tuple[int, int]] = []

    def read(self, first: int, count: int) -> memoryview:
        self.reads.append((first, count))
        return super().read(first, count)


@pytest.fixture
def file(tmp_path: Path) -> Recorded:
    path = tmp_path / "file"
    path.write_bytes(b"head" + TENSOR.numpy().tobytes())
    return Recorded(path)


def checks_of(file: SegmentFile, seen: list[torch.Tensor] | None = None) -> BlockChecks:
    """Return checks of blocks of 2 rows."""
    values = [] if seen is None else seen
    checksums = block_checksums({"values": TENSOR}, 2 * ROW_BYTES + 5)
    return BlockChecks(
        file=file, first_byte=4, tensor=TENSOR, checksums=checksums, rows=2, check_values=values.append
    )  # fmt: skip


def test_sizes() -> None:
    assert rows_per_block(TENSOR, 29) == 2
    assert rows_per_block(TENSOR, 5) == 1  # at least one row
    assert rows_per_block(TENSOR[:0], 29) >= 1
    assert num_blocks({"a": TENSOR, "b": TENSOR[:4]}, 29) == 4 + 2
    assert block_checksums({"a": TENSOR, "b": TENSOR[:4]}, 29).shape == (6, 2)
    assert block_checksums({"a": TENSOR[:0]}, 29).shape == (0, 2)
    assert len({tuple(row) for row in block_checksums({"a": TENSOR}, 29).tolist()}) == 4


def test_rows_are_read_once(file: Recorded) -> None:
    seen: list[torch.Tensor] = []
    checks = checks_of(file, seen)
    checks.check_rows(torch.tensor([3, 2, 3]))
    assert file.reads == [(4 + 2 * ROW_BYTES, 2 * ROW_BYTES)]
    assert seen[0].tolist() == TENSOR[2:4].tolist()
    checks.check_between(2, 4)
    checks.check_between(3, 3)
    assert len(file.reads) == 1
    checks.check_rows(torch.tensor([-1]))  # the last block has one row
    assert file.reads[1:] == [(4 + 6 * ROW_BYTES, ROW_BYTES)]
    assert not checks.is_complete
    checks.check_between(0, 7)
    assert file.reads[2:] == [(4, 2 * ROW_BYTES), (4 + 4 * ROW_BYTES, 2 * ROW_BYTES)]
    assert checks.is_complete


def test_a_block_that_failed_fails_again(file: Recorded, tmp_path: Path) -> None:
    content = bytearray((tmp_path / "file").read_bytes())
    content[4 + 5 * ROW_BYTES] ^= 1
    (tmp_path / "file").write_bytes(content)
    checks = checks_of(file)
    checks.check_between(0, 4)
    for _ in range(2):
        with pytest.raises(IndexFolderError, match="is damaged: its checksum does not match"):
            checks.check_rows(torch.tensor([4]))
    checks.check_rows(torch.tensor([6]))
    assert not checks.is_complete


def test_a_file_that_was_truncated_or_fails(file: Recorded, tmp_path: Path) -> None:
    os.truncate(tmp_path / "file", 20)
    checks = checks_of(file)
    with pytest.raises(IndexFolderError, match="ends after 20 bytes: it was truncated"):
        checks.check_between(0, 7)
    with pytest.raises(IndexFolderError, match=r"cannot be read \(Is a directory\)"):
        SegmentFile(os.open(tmp_path, os.O_RDONLY), tmp_path).read(0, 10)


def test_an_empty_tensor_is_complete(file: Recorded) -> None:
    checksums = torch.empty(0, 2, dtype=torch.int64)
    empty = BlockChecks(
        file=file, first_byte=0, tensor=TENSOR[:0], checksums=checksums, rows=2, check_values=lambda _: None
    )  # fmt: skip
    assert empty.is_complete
    empty.check_between(0, 0)
    empty.check_rows(torch.tensor([], dtype=torch.int64))
