"""Access to the files of an untrusted folder: only regular files inside it are opened.

A symbolic link could lead to any file of this machine, a FIFO never ends, a device can return any number of bytes.
None of them is followed, waited for or read. Every function takes the folder, which the caller trusts and which may
itself be reached through links, and a name inside it, no part of which may be a link.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railsearch.foundation.files import FileEntry, describe_open

NOT_REGULAR = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
SMALL_FILE = 2**24
"""Largest size in bytes of a file that is read into memory at once."""


class NotRegularError(OSError):
    """A link, a FIFO or a device in the place of a regular file or a folder."""


@contextmanager
def folder_inside(folder: Path, name: str = "") -> Iterator[int]:
    """Open a folder inside a folder, and yield its descriptor; raises NotRegularError if part of the name is a link."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in filter(None, name.split("/")):
            _check_name(folder, part)
            inner = _open(part, os.O_RDONLY | os.O_DIRECTORY, folder / name, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_inside(folder: Path, name: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file inside a folder, and return its descriptor; raises NotRegularError for anything else.

    With `O_CREAT` in the flags, a missing file is created.
    """
    parent, _, last = name.rpartition("/")
    _check_name(folder, last)
    with folder_inside(folder, parent) as inside:
        # O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
        descriptor = _open(last, flags | os.O_NONBLOCK, folder / name, inside)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _not_regular(mode, folder / name)
    return descriptor


def size_inside(folder: Path, name: str) -> int:
    """Return the size of a regular file inside a folder."""
    descriptor = open_inside(folder, name)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def read_inside(folder: Path, name: str, *, largest: int = SMALL_FILE) -> bytes:
    """Return the content of a small regular file; raises OSError if it has more than `largest` bytes."""
    descriptor = open_inside(folder, name)
    try:
        return read_open(descriptor, folder / name, largest=largest)
    finally:
        os.close(descriptor)


def read_open(descriptor: int, path: Path, *, largest: int = SMALL_FILE) -> bytes:
    """Return the content of a file that is open; raises OSError if it has more than `largest` bytes."""
    size = os.fstat(descriptor).st_size
    if size > largest:
        raise OSError(errno.EFBIG, f"it has {size} bytes but {largest} are allowed", str(path))
    content = bytearray()
    while piece := os.pread(descriptor, size - len(content), len(content)):  # a read may return less than asked for
        content += piece
    return bytes(content)


def describe_inside(folder: Path, name: str, *, expected_size: int) -> FileEntry:
    """Return size and checksum of a regular file; if the size differs, the checksum is not computed."""
    with open(open_inside(folder, name), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        return describe_open(file) if size == expected_size else FileEntry(size, "")


def files_inside(folder: Path, name: str = "") -> list[str]:
    """List the names of the regular files in a folder inside a folder."""
    with folder_inside(folder, name) as inside, os.scandir(inside) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def others_inside(folder: Path, name: str = "") -> list[str]:
    """List the names of everything but regular files in a folder inside a folder."""
    with folder_inside(folder, name) as inside, os.scandir(inside) as entries:
        return sorted(entry.name for entry in entries if not entry.is_file(follow_symlinks=False))


def remove_inside(folder: Path, name: str) -> None:
    """Remove a file inside a folder if it is there."""
    parent, _, last = name.rpartition("/")
    _check_name(folder, last)
    with folder_inside(folder, parent) as inside:
        try:
            os.unlink(last, dir_fd=inside)
        except FileNotFoundError:
            return


def _open(name: str, flags: int, path: Path, inside: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=inside)
    except OSError as error:
        # For anything but a regular file, Linux reports ELOOP, ENOTDIR or ENXIO, depending on the flags.
        try:
            mode = os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode
        except OSError:
            mode = stat.S_IFREG
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR} and not stat.S_ISREG(mode):
            raise _not_regular(mode, path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def _not_regular(mode: int, path: Path) -> NotRegularError:
    kind = NOT_REGULAR.get(stat.S_IFMT(mode), "not a file")
    return NotRegularError(errno.EINVAL, f"it is {kind}, which is not followed", str(path))


def _check_name(folder: Path, name: str) -> None:
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, f"{name!r} is not the name of a file in it", str(folder))
