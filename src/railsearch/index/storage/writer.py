"""Commits: new files, then a manifest, then CURRENT; durable when the call returns."""

import contextlib
import dataclasses
import datetime as dt
import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError, RailsearchError, StorageError
from railsearch.foundation.files import FileEntry, new_file
from railsearch.foundation.safe_files import NotRegularError
from railsearch.index.segment import Segment
from railsearch.index.storage.cleanup import clean_up
from railsearch.index.storage.manifest import SIMILARITY_FILES, Manifest, tombstones_file
from railsearch.index.storage.places import CURRENT, current_version, find_versions, manifest_file, pointer
from railsearch.index.storage.reading import map_segment
from railsearch.index.storage.segment_files import write_segment, write_tombstones

logger = logging.getLogger(__name__)


class Writer:
    """A writer that stores segments as they arrive and turns them into one version with a commit."""

    def __init__(
        self,
        folder: Path,
        base: Manifest,
        segments: tuple[Segment, ...],
        check_place: Callable[[], None],
        *,
        after: int = 0,
    ) -> None:
        """Store the version to build upon, and a function that raises if the folder was replaced by another.

        The new version is numbered after the version `after`, the newest in the folder.
        """
        self._folder = folder
        self._files: dict[str, FileEntry] = {}
        self._entries = {entry.name: entry for entry in base.segments}
        self._check_place = check_place
        self._version = after + 1
        self.base = base
        self.segments = segments

    def keep(self, segment: Segment) -> Segment:
        """Write a segment, and return it mapped from disk, so that its memory is free."""
        self._check_place()
        with storage_errors(self._folder):
            entry, files = write_segment(self._folder, segment)
        self._files |= files
        self._entries[entry.name] = entry
        return map_segment(self._folder, entry)

    def commit(
        self,
        segments: Iterable[Segment],
        tuned: Mapping[str, str] | None = None,
        source: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Commit a version of segments, each either in the base version or returned by `keep`; durable on return.

        The base version's tuned strategies and source are kept if they are omitted.
        """
        folder, segments = self._folder, list(segments)
        self._check_place()
        with storage_errors(folder):
            manifest = self._manifest(segments, tuned, dict(self.base.source if source is None else source))
            with new_file(folder / manifest_file(manifest.version)) as written:
                written.write_bytes(manifest.encode())
            self._check_place()
            try:
                with new_file(folder / CURRENT) as written:
                    written.write_bytes(pointer(manifest.version))
            except OSError as error:
                if not self.base.version or not _may_be_current(folder, manifest.version):
                    raise
                raise StorageError(
                    f"version {manifest.version} of {folder} is in place, but may not survive a power failure "
                    f"({error.strerror}); check the disk, and call refresh() to continue."
                ) from error
        try:
            clean_up(folder, find_versions(folder), manifest.version)
        except (OSError, IndexFolderError) as error:
            logger.warning("%s: cleanup of old versions failed: %s", folder, error)
        return manifest

    def _manifest(self, segments: list[Segment], tuned: Mapping[str, str] | None, source: dict[str, str]) -> Manifest:
        """Write which rows are removed, and return the manifest of the next version."""
        base, version = self.base, self._version
        before = {segment.name: segment for segment in self.segments}
        entries = []
        for segment in segments:
            old, entry = before.get(segment.name), self._entries[segment.name]
            tombstones = entry.tombstones
            if segment.is_live is not None and (old is None or old.is_live is not segment.is_live):
                tombstones = tombstones_file(segment.name, version)
                self._files[tombstones] = write_tombstones(self._folder / tombstones, segment.is_live)
            entries.append(dataclasses.replace(entry, tombstones=tombstones))
        files = base.files | self._files
        needed = (*SIMILARITY_FILES, *(file for entry in entries for file in entry.files))
        return Manifest(
            birth=base.birth,
            version=version,
            parent=base.version or None,
            created_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            fingerprint=base.fingerprint,
            models=base.models,
            precision=base.precision,
            num_items=sum(segment.num_live for segment in segments),
            segments=tuple(entries),
            files={name: files[name] for name in needed},
            tuned=dict(base.tuned if tuned is None else tuned),
            source=source,
            scan=base.scan,
        )


@contextlib.contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn a write that the operating system refused into an error that names the folder and the remedy."""
    try:
        yield
    except RailsearchError:
        raise
    except NotRegularError as error:
        raise IndexFolderError(
            f"{error.filename} cannot be used: {error.strerror}; restore the folder from a copy."
        ) from error
    except OSError as error:
        remedy = "free some space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "check permissions and disk"
        raise StorageError(
            f"{folder} cannot be written ({error.strerror}: {error.filename or 'a file'}); {remedy} and try again. "
            "The previous version is unchanged."
        ) from error


def _may_be_current(folder: Path, version: int) -> bool:
    """Return whether CURRENT names this version, or cannot be read."""
    try:
        return current_version(folder) == version
    except IndexFolderError:
        return True
