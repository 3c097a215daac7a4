"""The one checksum rule for the files of a folder: regular files only, the size first, then xxh3 over every byte."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from railsearch.foundation.errors import RailsearchError
from railsearch.foundation.files import BYTES_PER_CHUNK, FileEntry


def read_regular(path: Path, *, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`; raise an OSError for a link, a pipe, a device or a larger file."""
    with _opened(path) as (descriptor, size):
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"it has {size} bytes but at most {max_bytes} were expected", str(path))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(max_bytes)


def describe_files(folder: Path, tops: Iterable[str]) -> list[tuple[str, FileEntry]]:
    """Return name, size and checksum of every file at or below the given names in a folder."""
    found = []
    for name in list_files(folder, tops):
        with _opened(folder / name) as (descriptor, size):
            found.append((name, FileEntry(size, _digest(descriptor))))
    return found


def list_files(folder: Path, tops: Iterable[str]) -> list[str]:
    """Return the relative names of all files at or below the given names in a folder, sorted."""
    names = []
    for top in tops:
        path = folder / top
        if path.is_dir() and not path.is_symlink():
            names += [file.relative_to(folder).as_posix() for file in path.rglob("*") if not _is_folder(file)]
        elif path.exists() or path.is_symlink():
            names.append(top)
    return sorted(names)


def check_file(
    path: Path, entry: FileEntry, *, error: type[RailsearchError], remedy: str, returns_content: bool = False
) -> bytes:
    """Check size and checksum of a file, and return its content if asked to; refuse it with the given error."""
    try:
        with _opened(path) as (descriptor, size):
            content = b""
            if size == entry.size and returns_content:
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    content = file.read(size)
                found = FileEntry(len(content), xxhash.xxh3_128_hexdigest(content))
            else:
                found = FileEntry(size, _digest(descriptor) if size == entry.size else "")
    except FileNotFoundError:
        raise error(f"{path} does not exist; {remedy}.") from None
    except OSError as cause:
        raise error(f"{path} cannot be read ({cause.strerror or cause}); {remedy}.") from cause
    if found.size != entry.size:
        raise error(
            f"{path} was changed or damaged after saving: it has {found.size} bytes but {entry.size} were written; "
            f"{remedy}."
        )
    if found != entry:
        raise error(
            f"{path} was changed or damaged after saving: its checksum is {found.checksum} but {entry.checksum} was "
            f"written; {remedy}."
        )
    return content


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """Open a regular file, and yield its descriptor and size; a link, pipe or device raises an OSError at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _digest(descriptor: int) -> str:
    """Return the checksum of an open file; read and not mapped, since a failing disk under a map kills the process."""
    digest = xxhash.xxh3_128()
    while chunk := os.read(descriptor, BYTES_PER_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
