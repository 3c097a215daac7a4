"""Locks of an index folder: one writer at a time, and no version is removed while it is read.

The kernel holds the locks, so they end with their process.
"""

import contextlib
import datetime as dt
import errno
import fcntl
import os
import platform
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError, IndexLockedError, StorageError
from railsearch.foundation.safe_files import NotRegularError, open_inside, read_open, remove_inside

LOCK = "LOCK"


class WriterLock:
    """The LOCK file of an index folder; it names its holder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LOCK

    @contextlib.contextmanager
    def held(self, purpose: str) -> Iterator[Callable[[], None]]:
        """Hold the lock, or raise an error that names its holder.

        Yields a function that raises if another folder has since taken the place of this one.
        """
        try:
            descriptor = open_inside(self._folder, LOCK, os.O_RDWR | os.O_CREAT)
        except NotRegularError as error:
            raise IndexFolderError(f"{self._path} cannot be used: {error.strerror}; remove it.") from error
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written ({error.strerror}); check permissions.") from error
        try:
            self._take(descriptor)
            self._check_place(descriptor)
            self._write_holder(descriptor, purpose)
            yield lambda: self._check_place(descriptor)
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        try:
            while not _has_locked(descriptor, fcntl.LOCK_EX):
                # Readers that test the lock share it for a moment; only a writer holds it exclusively.
                if not _has_locked(descriptor, fcntl.LOCK_SH):
                    holder = _printable(os.pread(descriptor, 256, 0)) or "another process"
                    raise IndexLockedError(f"{self._folder} is being changed by {holder}; wait until it is done.")
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be locked ({error.strerror}); put the index on a disk that supports flock."
            ) from error

    def _check_place(self, descriptor: int) -> None:
        """Check that the file that is locked is still the one at this path."""
        try:
            is_same = os.path.samestat(os.fstat(descriptor), self._path.lstat())
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise IndexFolderError(
                f"{self._folder} was replaced by another folder while it was being changed; open it again with "
                "Index.open."
            )

    def _write_holder(self, descriptor: int, purpose: str) -> None:
        if os.fstat(descriptor).st_nlink > 1:
            return  # a hard link: the file has another name too, outside of our control
        started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # on a full disk only the name of the holder is missing
            os.ftruncate(descriptor, 0)
            holder = f"process {os.getpid()} on {platform.node()} ({purpose}, {started})"
            os.pwrite(descriptor, holder.encode(), 0)

    def is_held(self) -> bool:
        """Return whether a process is writing now."""
        try:
            descriptor = open_inside(self._folder, LOCK)
        except OSError:
            return False
        try:
            return not _has_locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


class ReaderLock:
    """A shared lock on a manifest: until it is released or deleted, cleanup keeps every file that it names."""

    def __init__(self, folder: Path, name: str) -> None:
        """Take the lock; raises FileNotFoundError if the manifest does not exist, or is being removed."""
        self._descriptor = open_inside(folder, name)
        self.release = weakref.finalize(self, os.close, self._descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            if os.fstat(self._descriptor).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / name))
            self.content = read_open(self._descriptor, folder / name)
            """The complete manifest, read from the file that is locked."""
        except BaseException:
            self.release()
            raise


def remove_if_unread(folder: Path, name: str) -> bool:
    """Remove a manifest unless a reader has its version open; return whether it is gone."""
    try:
        descriptor = open_inside(folder, name)
    except FileNotFoundError:
        return True
    try:
        if not _has_locked(descriptor, fcntl.LOCK_EX):
            return False
        remove_inside(folder, name)
    finally:
        os.close(descriptor)
    return True


def _printable(content: bytes) -> str:
    text = content.decode(errors="replace").strip()
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _has_locked(descriptor: int, kind: int) -> bool:
    """Lock a file without waiting; return False if another process holds it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
