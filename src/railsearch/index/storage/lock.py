"""One writer at a time, and no version taken away from under a reader; both by locks that die with their process."""

import contextlib
import datetime as dt
import fcntl
import os
import platform
import weakref
from collections.abc import Iterator
from pathlib import Path

from railsearch.errors import IndexFolderError, IndexLockedError


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
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(descriptor, 1024, 0).decode(errors="replace").strip() or "another process"
                raise IndexLockedError(
                    f"{self._path.parent} is being changed by {holder}; wait until it is done."
                ) from error
            started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            with contextlib.suppress(OSError):  # on a full disk only the name of the holder is missing
                os.ftruncate(descriptor, 0)
                holder = f"process {os.getpid()} on {platform.node()} ({purpose}, {started})"
                os.pwrite(descriptor, holder.encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether somebody is writing just now."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


class ReaderLock:
    """Keeps a manifest, and so all that it names, from being collected, until it is released or forgotten."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError where the manifest is gone, or goes just now."""
        self._descriptor = os.open(path, os.O_RDONLY)
        self.release = weakref.finalize(self, os.close, self._descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            if os.fstat(self._descriptor).st_nlink == 0:
                raise FileNotFoundError(path)
        except BaseException:
            self.release()
            raise

    def read(self) -> bytes:
        """The whole manifest, from the very file that is locked."""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0)


def remove_if_unread(path: Path) -> bool:
    """Remove a manifest unless somebody reads its version."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
