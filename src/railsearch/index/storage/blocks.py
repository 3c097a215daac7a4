"""Checks of a segment block by block, each before its first use, for an index that is opened without reading it.

A block is a few rows of one tensor. The head of a segment file holds its header, the checksums of all blocks and the
ids. The sealed manifest states the checksum of the head, so a chain of checksums leads from the manifest to every byte.
"""

import itertools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
import xxhash
from torch import Tensor

from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.files import BYTES_PER_CHUNK
from railsearch.kernels import for_each_block

BLOCK_BYTES = 2**16
"""Bytes of a block: few, because the first search reads one for each candidate; 16 bytes of checksum go with each."""
CHECKSUMS = "checksums"
IDS = "ids"
CHECKSUM_BYTES = 16
RUNS_PER_CORE = 8
"""Runs of blocks for each core from which on all cores check them."""


def rows_per_block(tensor: Tensor, block_bytes: int) -> int:
    """Return how many rows of a tensor make a block."""
    return max(1, block_bytes // max(1, tensor[:1].nbytes))


def block_checksums(tensors: Mapping[str, Tensor], block_bytes: int) -> Tensor:
    """Return the checksums (blocks, 2) of all blocks of tensors, one tensor after the other, in the order of names."""
    digests = bytearray()
    for name in sorted(tensors):
        tensor = tensors[name]
        step = rows_per_block(tensor, block_bytes)
        for first in range(0, len(tensor), step):
            block = tensor[first : first + step].cpu().contiguous().flatten().view(torch.uint8)
            digests += xxhash.xxh3_128_digest(block.numpy().data)
    if not digests:
        return torch.empty(0, 2, dtype=torch.int64)
    return torch.frombuffer(digests, dtype=torch.int64).view(-1, 2)  # (blocks, 2)


def num_blocks(tensors: Mapping[str, Tensor], block_bytes: int) -> int:
    """Return the number of blocks of tensors."""
    return sum(-(-len(tensor) // rows_per_block(tensor, block_bytes)) for tensor in tensors.values())


def first_bytes(data: Tensor, tensor: Tensor) -> int:
    """Return the place of a tensor, which may be empty, that is a view of the bytes (n,) of a file."""
    return int(tensor.storage_offset() * tensor.element_size() - data.storage_offset())


class SegmentFile:
    """A segment file that is open for reading: bytes are read and not mapped, so a failing disk is an error."""

    def __init__(self, descriptor: int, path: Path) -> None:
        """Take over a descriptor; it is closed with this object."""
        self.descriptor = descriptor
        self._path = path
        weakref.finalize(self, os.close, descriptor)

    def read(self, first: int, count: int) -> memoryview:
        """Return `count` bytes from a place in the file."""
        content = memoryview(bytearray(count))
        done = 0
        while done < count:
            try:
                found = os.preadv(self.descriptor, [content[done:]], first + done)
            except OSError as error:
                raise IndexFolderError(
                    f"{self._path} cannot be read ({error.strerror}); check permissions and disk."
                ) from error
            if not found:
                raise IndexFolderError(
                    f"{self._path} ends after {first + done} bytes: it was truncated; restore it from a copy."
                )
            done += found
        return content

    def check_head(self, size: int, checksum: str) -> None:
        """Check the first bytes of the file."""
        digest = xxhash.xxh3_128()
        for first in range(0, size, BYTES_PER_CHUNK):
            digest.update(self.read(first, min(BYTES_PER_CHUNK, size - first)))
        if digest.hexdigest() != checksum:
            raise self.damaged()

    def damaged(self) -> IndexFolderError:
        """Return the error for bytes that do not match their checksum."""
        return IndexFolderError(f"{self._path} is damaged: its checksum does not match; restore it from a copy.")


class BlockChecks:
    """The blocks of one tensor, and which of them were checked. Two threads may check the same block; that is harmless.

    Args:
        file: holds the tensor.
        first_byte: the place of the tensor in the file.
        tensor: the tensor as it is mapped.
        checksums: of its blocks (blocks, 2).
        rows: the number of rows of a block.
        check_values: raises an error if the values of rows (n, ...) cannot be used.
    """

    def __init__(
        self,
        *,
        file: SegmentFile,
        first_byte: int,
        tensor: Tensor,
        checksums: Tensor,
        rows: int,
        check_values: Callable[[Tensor], None],
    ) -> None:
        self._file = file
        self._first_byte = first_byte
        self._tensor = tensor
        self._checksums = checksums.numpy().tobytes()
        self._rows = rows
        self._check_values = check_values
        self._row_bytes = tensor[:1].nbytes
        self._is_checked = torch.zeros(len(checksums), dtype=torch.bool)  # (blocks,)
        self.is_complete = not len(checksums)
        """Whether every block was checked."""

    def check_between(self, first: int, last: int) -> None:
        """Check the blocks of the rows from first to last - 1."""
        if first < last and not self.is_complete:
            self._check(torch.arange(first // self._rows, (last - 1) // self._rows + 1))

    def check_rows(self, rows: Tensor) -> None:
        """Check the blocks of some rows (n,); negative rows count from the end, as in a tensor."""
        if len(rows) and not self.is_complete:
            self._check(torch.unique(rows % len(self._tensor) // self._rows))

    def _check(self, blocks: Tensor) -> None:
        """Check some blocks (n,), which are ascending."""
        missing = blocks[~self._is_checked[blocks]].tolist()
        runs = list(_runs(missing, max(1, BYTES_PER_CHUNK // max(1, self._rows * self._row_bytes))))

        def check_runs(first: int, last: int) -> None:
            for run in runs[first:last]:
                self._check_run(*run)

        for_each_block(len(runs), 1, check_runs, device=self._tensor.device, blocks_per_core=RUNS_PER_CORE)
        if missing and bool(self._is_checked.all()):
            self.is_complete = True

    def _check_run(self, first: int, last: int) -> None:
        """Check the consecutive blocks from first to last - 1."""
        first_row, last_row = first * self._rows, min(last * self._rows, len(self._tensor))
        content = self._file.read(
            self._first_byte + first_row * self._row_bytes, (last_row - first_row) * self._row_bytes
        )
        size = self._rows * self._row_bytes
        for block in range(first, last):
            begin = (block - first) * size
            expected = self._checksums[block * CHECKSUM_BYTES : (block + 1) * CHECKSUM_BYTES]
            if xxhash.xxh3_128_digest(content[begin : begin + size]) != expected:
                raise self._file.damaged()
        self._check_values(self._tensor[first_row:last_row])
        self._is_checked[first:last] = True


def _runs(blocks: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last + 1 of consecutive numbers, at most `most` at a time.

    >>> list(_runs([1, 2, 3, 7, 8], most=2))
    [(1, 3), (3, 4), (7, 9)]
    """
    for _, group in itertools.groupby(enumerate(blocks), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        for first in range(numbers[0], numbers[-1] + 1, most):
            yield first, min(first + most, numbers[-1] + 1)
