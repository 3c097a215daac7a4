"""Checksums of the files of a folder: regular files only; the size is checked first, then xxh3 over every byte."""

import os
from collections.abc import Iterable
from pathlib import Path

import xxhash

from railsearch.foundation.errors import RailsearchError
from railsearch.foundation.files import FileEntry
from railsearch.foundation.safe_files import describe_inside, open_inside, size_inside


def describe_files(folder: Path, tops: Iterable[str]) -> dict[str, FileEntry]:
    """Return size and checksum of every file at or below the given names in a folder, by name."""
    names = list_files(folder, tops)
    return {name: describe_inside(folder, name, expected_size=size_inside(folder, name)) for name in names}


def list_files(folder: Path, tops: Iterable[str]) -> list[str]:
    """Return the relative names of everything but folders at or below the given names in a folder, sorted."""
    names = []
    for top in tops:
        path = folder / top
        if _is_folder(path):
            names += [file.relative_to(folder).as_posix() for file in path.rglob("*") if not _is_folder(file)]
        elif path.exists() or path.is_symlink():
            names.append(top)
    return sorted(names)


def check_file(folder: Path, name: str, entry: FileEntry, *, error: type[RailsearchError], remedy: str) -> None:
    """Check size and checksum of a file inside a folder; raise the given error if they differ."""
    try:
        found = describe_inside(folder, name, expected_size=entry.size)
    except OSError as cause:
        raise _unreadable(folder / name, cause, error, remedy) from cause
    _compare(folder / name, found, entry, error, remedy)


def read_checked(folder: Path, name: str, entry: FileEntry, *, error: type[RailsearchError], remedy: str) -> bytes:
    """Return the content of a file inside a folder, read and checked in one pass."""
    content = b""
    try:
        with os.fdopen(open_inside(folder, name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == entry.size:
                content = file.read()
                size = len(content)
    except OSError as cause:
        raise _unreadable(folder / name, cause, error, remedy) from cause
    _compare(folder / name, FileEntry(size, xxhash.xxh3_128_hexdigest(content)), entry, error, remedy)
    return content


def _compare(path: Path, found: FileEntry, entry: FileEntry, error: type[RailsearchError], remedy: str) -> None:
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


def _unreadable(path: Path, cause: OSError, error: type[RailsearchError], remedy: str) -> RailsearchError:
    if isinstance(cause, FileNotFoundError):
        return error(f"{path} does not exist; {remedy}.")
    return error(f"{path} cannot be read ({cause.strerror or cause}); {remedy}.")


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
