"""One writer at a time, and no version taken away from under a reader; both by locks that die with their process."""

import contextlib
import datetime as dt
import fcntl
import os
import platform
import weakref
from collections.abc import Iterator
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError, IndexLockedError


class WriterLock:
    """The LOCK file of an index folder; it says who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def held(self, purpose: str) -> Iterator[None]:
        """Hold the lock, or say who does."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise IndexFolderError(f"{self._path} cannot be written ({error.strerror}); check permissions.") from error
        try:
            self._take(descriptor)
            started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            with contextlib.suppress(OSError):  # on a full disk only the name of the holder is missing
                os.ftruncate(descriptor, 0)
                holder = f"process {os.getpid()} on {platform.node()} ({purpose}, {started})"
                os.pwrite(descriptor, holder.encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        try:
            while not _has_locked(descriptor, fcntl.LOCK_EX):
                # Readers who ask whether it is held share it for a moment; only a writer keeps it from being shared.
                if not _has_locked(descriptor, fcntl.LOCK_SH):
                    holder = os.pread(descriptor, 1024, 0).decode(errors="replace").strip() or "another process"
                    raise IndexLockedError(f"{self._path.parent} is being changed by {holder}; wait until it is done.")
        except OSError as error:
            raise IndexFolderError(
                f"{self._path} cannot be locked ({error.strerror}); put the index on a disk that knows flock."
            ) from error

    def is_held(self) -> bool:
        """Whether somebody is writing just now."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:
            return False
        try:
            return not _has_locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


class ReaderLock:
    """Keeps a manifest, and so all that it names, from being collected, until it is released or forgotten."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError where the manifest is gone, or goes just now."""
        self._descriptor = os.open(path, os.O_RDONLY)
        self.release = weakref.finalize(self, os.close, self._descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            state = os.fstat(self._descriptor)
            if state.st_nlink == 0:
                raise FileNotFoundError(path)
            self.content = os.pread(self._descriptor, state.st_size, 0)
            """The whole manifest, from the very file that is locked."""
        except BaseException:
            self.release()
            raise


def remove_if_unread(path: Path) -> bool:
    """Remove a manifest unless somebody reads its version."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        if not _has_locked(descriptor, fcntl.LOCK_EX):
            return False
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return True


def _has_locked(descriptor: int, kind: int) -> bool:
    """Lock a file at once, or say that somebody else has."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
