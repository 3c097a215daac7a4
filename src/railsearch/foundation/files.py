"""Files and folders that are complete or missing, even if the process is killed at any moment."""

import fcntl
import glob
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import xxhash

logger = logging.getLogger(__name__)

BYTES_PER_CHUNK = 2**20
TEMPORARY = ".tmp"
"""Suffix of names that are ignored everywhere."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """The size and checksum that a file must have."""

    size: int
    checksum: str
    """xxh3, 128 bits."""


def describe(path: Path) -> FileEntry:
    """Return size and checksum of a file."""
    with path.open("rb", buffering=0) as file:
        return describe_open(file)


def describe_open(file: FileIO) -> FileEntry:
    """Return size and checksum of a file that is open at its start.

    xxh3 runs at the speed of memory, so every open of a folder can afford it. The file is read and not mapped: if a
    disk fails under a map, the process is killed.
    """
    digest, size = xxhash.xxh3_128(), 0
    chunk = memoryview(bytearray(BYTES_PER_CHUNK))
    while count := file.readinto(chunk):
        digest.update(chunk[:count])
        size += count
    return FileEntry(size, digest.hexdigest())


def describe_start(path: Path, size: int) -> str:
    """Return the checksum of the first `size` bytes of a file that has at least that many."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while size and (content := file.read(min(size, BYTES_PER_CHUNK))):
            digest.update(content)
            size -= len(content)
    return digest.hexdigest()


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a temporary name to write to, and rename that file to `target` when the block ends.

    Content and name are on disk when this returns. After an exception in the block, `target` is unchanged.
    """
    written = target.with_name(f"{target.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        yield written
        sync(written)
        written.replace(target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    sync(target.parent)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep other processes that call this out of a folder; raises OSError if another one holds the lock.

    The kernel holds the lock, so it ends with the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def only_changer(target: Path) -> Iterator[None]:
    """Keep other processes that call this from changing a folder that is replaced as a whole.

    Raises BlockingIOError if another process holds the lock, a hidden file beside the folder. The kernel holds the
    lock, so it ends with the process.
    """
    target = target.resolve()
    descriptor = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def new_folder(target: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Yield an empty folder to write into, and rename it to `target` when the block ends.

    Everything is on disk before the name changes. With `replaces`, an existing folder is moved aside and removed
    last: if the process is killed between the two renames, `settled_folder` finds the old one. Without `replaces`, an
    existing folder raises OSError. After an exception, `target` is unchanged. Only one process may write at a time.
    """
    target = target.resolve()
    _make_durably(target.parent)
    _remove_abandoned(target)
    written = target.with_name(f".{target.name}.{uuid.uuid4().hex}{TEMPORARY}")
    written.mkdir()
    aside = _aside(target)
    in_use = os.open(written, os.O_RDONLY)  # the lock on it shows that its writer is alive
    try:
        fcntl.flock(in_use, fcntl.LOCK_SH)
        yield written
        for path in written.rglob("*"):
            sync(path)
        sync(written)
        if replaces and target.exists():
            shutil.rmtree(aside, ignore_errors=True)
            target.rename(aside)
        written.rename(target)
    except BaseException:
        shutil.rmtree(written, ignore_errors=True)
        if replaces and aside.exists() and not target.exists():
            aside.rename(target)
        raise
    finally:
        os.close(in_use)
    sync(target.parent)
    if replaces:
        shutil.rmtree(aside, ignore_errors=True)


def settled_folder(target: Path) -> Path:
    """Return the folder to read: `target`, or the old one if the process was killed between the two renames."""
    target = target.resolve()
    aside = _aside(target)
    if os.path.exists(target) or not os.path.exists(aside):  # noqa: PTH110  (Path.exists raises if a name is too long)
        return target
    logger.warning("%s is missing because saving it again was interrupted; using the old folder, %s", target, aside)
    return aside


def _remove_abandoned(target: Path) -> None:
    """Remove folders that killed processes began to write for this target; they may be as large as the target."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*{TEMPORARY}"):
        with suppress(OSError):  # another process is writing it, or it is not ours
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(descriptor)


def _make_durably(folder: Path) -> None:
    """Create a folder and its missing parents, so that a power failure cannot lose one of them later."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.previous")


def sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to disk, so that a power failure cannot lose them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
