"""A batch job as plain values: any process can open it and compute any of its parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from railsearch.distributed.batch.parts import part_name, write_part
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.files import FileEntry, describe
from railsearch.foundation.inputs import as_file, check_count

if TYPE_CHECKING:
    from polars import DataFrame

ROWS_PER_PART = 8192
"""Rows of the input in one part. It is a multiple of the batches in which queries, users and passages are computed, so
that a part consists of the same batches as one call with all rows."""

Stated = Mapping[str, str | int | bool | None]
Compute = Callable[[int], "DataFrame"]


class Job(Protocol):
    """One batch job: a frozen dataclass that can be sent to another process.

    The input is cut into parts by numbers that are in the job, so part 7 has the same rows in every process and in
    every run.
    """

    kind: ClassVar[str]

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        ...

    def stated(self) -> Stated:
        """Return everything that determines the output, by name. Two jobs that state the same are one job."""
        ...

    def places(self) -> dict[str, str]:
        """Return the paths of input and model. They are written down for people; a moved file is the same input."""
        ...

    def open(self) -> Compute:
        """Open the model or index, verify it, and return the function that computes a part."""
        ...


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was when its job started."""

    path: Path
    size: int
    checksum: str
    modified_at: int
    """Nanoseconds. Another process that reads a part compares this and the size, and need not read the whole file."""

    @classmethod
    def describe(cls, path: str | Path) -> "InputFile":
        """Return the description of a file, which is read once."""
        file = as_file(path)
        modified_at = file.stat().st_mtime_ns
        found = describe(file)
        described = cls(file, found.size, found.checksum, modified_at)
        described.check()
        return described

    @classmethod
    def seen(cls, path: str | Path) -> "InputFile":
        """Return the size and time of a file, which is not read."""
        file = as_file(path)
        status = file.stat()
        return cls(file, status.st_size, "", status.st_mtime_ns)

    @classmethod
    def known(cls, path: Path, entry: FileEntry) -> "InputFile":
        """Return the description of a file whose size and checksum were just checked."""
        return cls(path, entry.size, entry.checksum, path.stat().st_mtime_ns)

    def check(self) -> None:
        """Refuse the file if it has changed since it was described."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise InvalidInputError(
                f"{self.path} cannot be read here ({error.strerror}); put it on a file system that all workers share."
            ) from error
        if (status.st_size, status.st_mtime_ns) != (self.size, self.modified_at):
            raise InvalidInputError(
                f"{self.path} was changed while the job was running: it had {self.size} bytes and has "
                f"{status.st_size}; restore it and run the job again, or remove the output and start again."
            )

    def stated(self, name: str) -> Stated:
        """Return size and checksum for `Job.stated`."""
        return {f"{name}_size": self.size, f"{name}_checksum": self.checksum}


@dataclass(frozen=True, slots=True)
class PartTask:
    """The parts of a job as numbered pieces of work that any process can do."""

    job: Job
    folder: Path
    identity: str

    def open(self) -> Callable[[int], int]:
        """Open the job, and return the function that computes and writes a part and returns the number of its rows."""
        compute = self.job.open()

        def run(part: int) -> int:
            frame = compute(part)
            write_part(self.folder, part, frame, identity=self.identity)
            return len(frame)

        return run

    def is_done(self, part: int) -> bool:
        """Return whether the file of a part is there."""
        return (self.folder / part_name(part)).is_file()


def count_parts(num_rows: int, rows_per_part: int) -> int:
    """Return the number of parts of an input.

    >>> count_parts(10, 4)
    3
    """
    return -(-num_rows // check_count(rows_per_part, name="rows_per_part"))
