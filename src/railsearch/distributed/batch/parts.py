"""The output of a batch job: one Parquet file for each part, complete or missing, and a sealed job.json.

results/
  job.json               the job: input, model, settings and number of parts
  part-00000.parquet     its name is its number; its metadata name the job
  part-00001.parquet
  LOCK                   held while a process runs the job
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from railsearch.folders import FolderFormat
from railsearch.foundation.errors import InvalidInputError, JobFolderError, StorageError
from railsearch.foundation.files import TEMPORARY, new_file, only_writer
from railsearch.foundation.inputs import as_path
from railsearch.foundation.safe_files import files_inside, others_inside

if TYPE_CHECKING:
    from polars import DataFrame

JOB_FILE = "job.json"
LOCK_FILE = "LOCK"
FORMAT = FolderFormat(
    "railsearch.batch",
    1,
    noun="batch job",
    writer="a batch job",
    config_file=JOB_FILE,
    error=JobFolderError,
    remedy="remove the folder and run the job again",
)
PART = re.compile(r"part-(\d{5,})\.parquet")
JOB_KEY, PART_KEY = "railsearch.job", "railsearch.part"
"""Keys of the metadata of each Parquet file."""
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True)
class PartsFolder:
    """The folder of one job, which this process may write."""

    path: Path
    num_parts: int
    identity: str

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are still to be computed; refuse files of another job."""
        return sorted(set(range(self.num_parts)) - self._found())

    def file(self, part: int) -> Path:
        """Return the file of a part."""
        return self.path / part_name(part)

    def read(self, part: int) -> "DataFrame":
        """Return the content of a part."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        try:
            return pl.read_parquet(self.file(part), glob=False)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise JobFolderError(f"{self.file(part)} cannot be read ({error}); remove it and run again.") from error

    def remove(self) -> None:
        """Remove everything that the job wrote, and the folder if nothing else is in it."""
        for part in self._found():
            self.file(part).unlink()
        for name in (JOB_FILE, LOCK_FILE):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _found(self) -> set[int]:
        found = set()
        for name in files_inside(self.path):
            if (named := PART.fullmatch(name)) is None:
                continue
            part = int(named[1])
            if part >= self.num_parts or name != part_name(part):
                raise JobFolderError(
                    f"{self.path / name} is not one of the {self.num_parts} parts of this job; remove the file."
                )
            _check_part(self.path / name, part, self.identity)
            found.add(part)
        return found


@contextmanager
def opened_parts(
    path: Path, *, kind: str, stated: Mapping[str, Any], places: Mapping[str, str], num_parts: int
) -> Iterator[PartsFolder]:
    """Yield the folder of a job, new or begun before; no other process can run a job in it meanwhile.

    Args:
        path: the folder, from `as_output`. One that holds another job or other files is refused.
        kind: the kind of the job, such as "search".
        stated: everything that determines the output.
        places: paths of the input and the model, for people.
        num_parts: the number of parts.
    """
    check_output(path)
    job = {"kind": kind, **stated, "num_parts": num_parts}
    try:
        with only_writer(path):
            _remove_unfinished(path)
            if (path / JOB_FILE).exists():
                _check_same(path, FORMAT.read(path)["job"], job)
            else:
                with new_file(path / JOB_FILE) as written:
                    written.write_text(FORMAT.encode(path, {"job": job, "places": dict(places)}))
            yield PartsFolder(path, num_parts, _identity(job))
    except BlockingIOError as error:
        raise JobFolderError(f"another process runs a job in {path}; wait for it, or choose another folder.") from error


def as_output(path: str | Path) -> Path:
    """Return the folder for the output; refuse a URL, because only a file system can hold complete-or-missing files."""
    if URL.match(str(path)):
        raise InvalidInputError(
            f"output is {str(path)!r}, which is a URL; give a folder. To write to an object store, mount the bucket as "
            "a folder, or copy the finished folder there."
        )
    return as_path(path)


def check_output(path: Path) -> None:
    """Refuse a folder that holds anything but a batch job."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InvalidInputError(f"output is {path}, which is a file; give a folder.")
    ours = {JOB_FILE, LOCK_FILE}
    others = [
        name
        for name in (*files_inside(path), *others_inside(path))
        if name not in ours and not PART.fullmatch(name) and not name.endswith(TEMPORARY)
    ]
    if others or (not (path / JOB_FILE).exists() and any(PART.fullmatch(name) for name in files_inside(path))):
        shown = others[0] if others else "parts without a job.json"
        raise InvalidInputError(f"output is {path}, which holds {shown}; choose an empty or a new folder.")


def write_part(folder: Path, part: int, frame: "DataFrame", *, identity: str) -> None:
    """Write a part; its file is complete or missing."""
    content = io.BytesIO()  # polars reports a full disk in its own way
    frame.write_parquet(content, metadata={JOB_KEY: identity, PART_KEY: str(part)})
    try:
        with new_file(folder / part_name(part)) as written:
            written.write_bytes(content.getbuffer())
    except OSError as error:
        raise StorageError(
            f"{folder / part_name(part)} cannot be written ({error.strerror or error}); finished parts are kept, run "
            "the job again to continue."
        ) from error


def part_name(part: int) -> str:
    """Return the name of the file of a part.

    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{part:05d}.parquet"


def _check_part(file: Path, part: int, identity: str) -> None:
    """Check that a file is a part of this job; only its footer is read."""
    import polars as pl  # noqa: PLC0415

    try:
        metadata = pl.read_parquet_metadata(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise JobFolderError(f"{file} is damaged ({error}); remove it and run the job again.") from error
    if (metadata.get(JOB_KEY), metadata.get(PART_KEY)) != (identity, str(part)):
        raise JobFolderError(f"{file} is not part {part} of this job; remove the file, or choose another folder.")


def _check_same(path: Path, known: object, job: Mapping[str, Any]) -> None:
    """Refuse another job than the one in the folder, and name the first difference."""
    if not isinstance(known, dict):
        raise JobFolderError(f"{path / JOB_FILE} states no job; {FORMAT.remedy}.")
    for name in (*job, *known):
        if known.get(name) != job.get(name):
            raise JobFolderError(
                f"{path} belongs to another job: its {name} is {known.get(name)!r} but this job has {job.get(name)!r}; "
                "choose another folder, or remove this one."
            )


def _identity(job: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(job, sort_keys=True).encode())


def _remove_unfinished(path: Path) -> None:
    """Remove files that killed processes began to write."""
    for name in files_inside(path):
        if name.endswith(TEMPORARY):
            (path / name).unlink(missing_ok=True)
