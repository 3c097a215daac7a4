"""The index folder: find versions, open them, and let one writer at a time commit."""

import contextlib
import dataclasses
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from railsearch.folders import save_similarity
from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.files import describe
from railsearch.index.storage.cleanup import clean_up
from railsearch.index.storage.lazy_segments import Verify, check_in_background
from railsearch.index.storage.lock import ReaderLock, WriterLock
from railsearch.index.storage.manifest import SIMILARITY_FILES, Manifest
from railsearch.index.storage.places import (
    CURRENT,
    FOLDERS,
    check_folders,
    check_is_index,
    current_version,
    find_versions,
    list_versions,
    manifest_file,
)
from railsearch.index.storage.reading import (
    SIMILARITY,
    Snapshot,
    check_same_index,
    check_sizes,
    open_version,
    unreadable,
)
from railsearch.index.storage.verification import Problem, Verification, check_unique, verify_versions
from railsearch.index.storage.writer import Writer, storage_errors
from railsearch.similarity import Similarity, fingerprint

logger = logging.getLogger(__name__)


class Store:
    """An index folder."""

    def __init__(self, path: Path, verify: Verify = Verify.FULL) -> None:
        self.path = path
        self._verify = verify
        self._writer_lock = WriterLock(path)

    @classmethod
    @contextlib.contextmanager
    def creating(
        cls,
        folder: Path,
        similarity: Similarity,
        *,
        models: Sequence[str],
        precision: str,
        source: Mapping[str, str],
        scan: str,
    ) -> Iterator[Writer]:
        """Yield a writer for the first version, in an empty folder that no other process knows yet."""
        with storage_errors(folder):
            for name in FOLDERS:
                (folder / name).mkdir()
            save_similarity(similarity, folder / SIMILARITY)
            files = {name: describe(folder / name) for name in SIMILARITY_FILES}
        base = Manifest(
            birth=uuid.uuid4().hex,
            version=0,
            parent=None,
            created_at="",
            fingerprint=fingerprint(similarity),
            models=tuple(models),
            precision=precision,
            num_items=0,
            segments=(),
            files=files,
            tuned={},
            source=dict(source),
            scan=scan,
        )
        yield Writer(folder, base, (), check_place=lambda: None)

    def read(self, version: int | None = None, known: Snapshot | None = None) -> Snapshot:
        """Open a version, the current one if none is named; files that `known` has open are not read again.

        Raises IndexFolderError if `known` is of another index, which was at this path before.
        """
        check_is_index(self.path)
        if version is not None:
            self._check_was_acknowledged(version)
        lock, wanted = self._lock(version)
        is_lazy = self._verify is not Verify.FULL
        snapshot = open_version(self.path, self._decode(lock, wanted), lock, known, is_lazy=is_lazy)
        check_unique(self.path, snapshot)
        if self._verify is Verify.BACKGROUND:
            check_in_background(snapshot.segments)
        return snapshot

    def verify(self) -> Verification:
        """Read every file of every version, and list the problems."""
        if not os.path.isdir(self.path):  # noqa: PTH112  (Path.is_dir raises if a name is too long)
            raise IndexFolderError(f"{self.path} does not exist; give an index folder.")
        try:
            lock, current = self._lock()
        except IndexFolderError as error:
            found = verify_versions(self.path, None)
            lost = self._lost_version(str(error))
            others = (problem for problem in found.problems if problem.message != lost.message)
            return dataclasses.replace(found, problems=(lost, *others))
        try:
            return verify_versions(self.path, current)
        finally:
            lock.release()

    @contextlib.contextmanager
    def writing(
        self, purpose: str, known: Snapshot, *, check_base: Callable[[], None] | None = None
    ) -> Iterator[Writer]:
        """Hold the lock, and yield a writer on top of the current version; refuse if the index was replaced.

        With `check_base`, the writer starts from `known` instead, and versions after it are abandoned. Cleanup keeps
        `known`, because it is open. The function is called while the lock is held, and raises if that is too late.
        """
        check_is_index(self.path)
        with self._writer_lock.held(purpose) as check_place:
            with storage_errors(self.path):
                check_folders(self.path)
            if check_base is None:
                snapshot = self._newest(known)
                after = snapshot.manifest.version
            else:
                check_base()
                snapshot, after = known, self._version_after(known)
            try:
                yield Writer(self.path, snapshot.manifest, snapshot.segments, check_place, after=after)
            except BaseException:
                # Removing files that no version names may free the missing space.
                with contextlib.suppress(OSError, IndexFolderError):
                    check_place()
                    clean_up(self.path, find_versions(self.path), current_version(self.path))
                raise

    def _newest(self, known: Snapshot) -> Snapshot:
        """Return the current version; `known` itself if it is current, since it is already open."""
        lock, version = self._lock()
        if self._decode(lock, version) == known.manifest:
            lock.release()
            check_sizes(self.path, known.manifest)
            return known
        return self.read(known=known)

    def _version_after(self, base: Snapshot) -> int:
        """Return the current version, which a change to an older one comes after."""
        lock, version = self._lock()
        check_same_index(self.path, self._decode(lock, version), base.manifest)
        lock.release()
        check_sizes(self.path, base.manifest)
        return version

    def _decode(self, lock: ReaderLock, version: int) -> Manifest:
        path = self.path / manifest_file(version)
        manifest = Manifest.decode(lock.content, path)
        if manifest.version != version:
            raise IndexFolderError(f"{path} is the manifest of version {manifest.version}; restore it from a copy.")
        return manifest

    def _lock(self, version: int | None = None) -> tuple[ReaderLock, int]:
        """Lock a version against cleanup, the current one if none is named; return the lock and the version."""
        for _ in range(100):
            wanted = self._newest_version() if version is None else version
            path = self.path / manifest_file(wanted)
            try:
                return ReaderLock(self.path, manifest_file(wanted)), wanted
            except FileNotFoundError as error:
                # A writer may have moved on and removed this version between the two reads.
                if version is None and current_version(self.path) != wanted:
                    continue
                raise IndexFolderError(
                    f"{path} does not exist; versions in this folder: {list_versions(find_versions(self.path))}."
                ) from error
            except OSError as error:
                raise unreadable(path, error) from error
        raise IndexFolderError(f"{self.path} changes faster than it can be opened; try again.")

    def _newest_version(self) -> int:
        """Return the version that was acknowledged last; log a warning if a later one was begun."""
        version = current_version(self.path)
        newer = [found for found in find_versions(self.path) if found > version]
        # An active writer may have finished by now: the lock is free, and CURRENT has moved on.
        if newer and not self._writer_lock.is_held() and current_version(self.path) == version:
            logger.warning(
                "%s: version %d was begun but never acknowledged; using version %d", self.path, newer[-1], version
            )
        return version

    def _lost_version(self, message: str) -> Problem:
        """Return the problem of a current version that cannot be found."""
        try:
            version = current_version(self.path)
        except IndexFolderError:
            return Problem(message, CURRENT)
        return Problem(message, manifest_file(version), (version,), is_current=True)

    def _check_was_acknowledged(self, version: int) -> None:
        try:
            current = current_version(self.path)
        except IndexFolderError:
            return  # opening a version by its number is the remedy for this
        if version > current:
            found = [found for found in find_versions(self.path) if found <= current]
            raise IndexFolderError(
                f"version {version} of {self.path} was never acknowledged; the newest is {current} "
                f"(here: {list_versions(found)})."
            )
