"""The index folder: versions are read whole and checked, changes are commits, old versions are collected.

    LOCK                        one writer at a time
    CURRENT                     the version that was acknowledged last
    manifests/<version>.json    what a version is made of: every file with its size and checksum
    segments/<name>.safetensors ids, components, gate, component sums; never changed
    tombstones/<name>-<version>.safetensors   rows of a segment that are no longer live
    metadata/<name>.arrow       columns that go with a segment's items
    tables/                     tables of engines, a cache: see table_files.py
    similarity/                 the model folder

A change writes new files, then a manifest, then CURRENT; each to a temporary name that is synced and renamed. Until
CURRENT is in place nothing has changed; once it is, nothing can be lost. What nobody names is ignored.
"""

import contextlib
import dataclasses
import datetime as dt
import errno
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from railsearch.folders.similarity_folder import fingerprint, load_similarity, save_similarity
from railsearch.foundation.errors import FingerprintError, IndexFolderError, ModelFolderError
from railsearch.foundation.files import TEMPORARY, FileEntry, describe, new_file, sync
from railsearch.index.segment import Segment
from railsearch.index.storage.lock import ReaderLock, WriterLock, remove_if_unread
from railsearch.index.storage.manifest import Manifest, SealBrokenError, SegmentEntry, seal, unseal
from railsearch.index.storage.segment_files import read_segment, write_segment, write_tensors
from railsearch.index.storage.table_files import remove_tables
from railsearch.similarity import Similarity

logger = logging.getLogger(__name__)

CURRENT = "CURRENT"
SIMILARITY = "similarity"
FOLDERS = ("manifests", "segments", "tombstones", "metadata")
MANIFEST_NAME = re.compile(r"[0-9]{8,}\.json")
KEPT_VERSIONS = 3
"""Versions that stay: the newest and those before it. Older ones stay only as long as somebody reads them."""
CHECKING_THREADS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version, open for reading for as long as this is kept."""

    manifest: Manifest
    similarity: Similarity
    segments: tuple[Segment, ...]
    lock: ReaderLock


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` looked at, and what it found to be wrong."""

    versions: tuple[int, ...]
    num_files: int
    num_bytes: int
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


class Store:
    """An index folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer_lock = WriterLock(path / "LOCK")

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
    ) -> Iterator["Writer"]:
        """Give a writer for a first version in a folder that is empty and that nobody else knows yet."""
        with _said_plainly(folder):
            for name in FOLDERS:
                (folder / name).mkdir()
            save_similarity(similarity, folder / SIMILARITY)
            files = {f"{SIMILARITY}/{file.name}": describe(file) for file in sorted((folder / SIMILARITY).iterdir())}
        base = Manifest(
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
        )
        yield Writer(cls(folder), base, ())

    def read(self, version: int | None = None, known: Snapshot | None = None) -> Snapshot:
        """Open a version, the current one if none is named; what `known` has open already is not read again."""
        self._check_is_index()
        if version is not None:
            self._check_was_acknowledged(version)
        lock, wanted = self._lock(version)
        path = self.manifest_path(wanted)
        manifest = Manifest.decode(lock.content, path)
        if manifest.version != wanted:
            raise IndexFolderError(f"{path} is the manifest of version {manifest.version}; restore it from a copy.")
        return self._open(manifest, lock, known)

    def current_version(self) -> int:
        """The version that was acknowledged last."""
        path = self.path / CURRENT
        try:
            version = json.loads(unseal(path.read_bytes()))["version"]
            if type(version) is not int:
                raise TypeError(version)
        except FileNotFoundError as error:
            raise self._lost(path, "is missing") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        except (SealBrokenError, ValueError, KeyError, TypeError) as error:
            raise self._lost(path, "is damaged: its checksum does not hold") from error
        return version

    def versions(self) -> list[int]:
        """Versions that have a manifest, oldest first."""
        folder = self.path / "manifests"
        try:
            return sorted(int(path.stem) for path in folder.iterdir() if MANIFEST_NAME.fullmatch(path.name))
        except OSError as error:
            raise _unreadable(folder, error) from error

    def _lock(self, version: int | None = None) -> tuple[ReaderLock, int]:
        """Keep a version from being collected, the current one if none is named; gives its number too."""
        for _ in range(100):
            wanted = self._newest_version() if version is None else version
            path = self.manifest_path(wanted)
            try:
                return ReaderLock(path), wanted
            except FileNotFoundError as error:
                # A writer may have moved on and collected this version between the two reads.
                if version is None and self.current_version() != wanted:
                    continue
                raise IndexFolderError(
                    f"{path} does not exist; versions in this folder: {_listed(self.versions())}."
                ) from error
            except OSError as error:
                raise _unreadable(path, error) from error
        raise IndexFolderError(f"{self.path} changes faster than it can be opened; try again.")

    def _lost(self, path: Path, state: str) -> IndexFolderError:
        versions = _listed(self.versions())
        return IndexFolderError(f"{path} {state}; restore it, or open a version by its number (here: {versions}).")

    def _newest_version(self) -> int:
        """The version that was acknowledged last; says so loudly where a later one was begun."""
        version = self.current_version()
        newer = [found for found in self.versions() if found > version]
        # A writer that was at work may be done by now: the lock is free, and CURRENT has moved on.
        if newer and not self._writer_lock.is_held() and self.current_version() == version:
            logger.warning(
                "%s: version %d was begun but never acknowledged; using version %d", self.path, newer[-1], version
            )
        return version

    def _check_is_index(self) -> None:
        try:
            is_there, is_folder = self.path.exists(), self.path.is_dir()
            is_index = is_folder and (self.path / "manifests").is_dir()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if not is_there:
            raise IndexFolderError(f"{self.path} does not exist; build it with Index.build(..., path=...).")
        if not is_folder:
            raise IndexFolderError(f"{self.path} is a file; give the folder of an index.")
        if not is_index:
            raise IndexFolderError(f"{self.path} is not a railsearch index; give another folder.")

    def _check_was_acknowledged(self, version: int) -> None:
        try:
            current = self.current_version()
        except IndexFolderError:
            return  # to open a version by its number is the remedy for this
        if version > current:
            raise IndexFolderError(
                f"version {version} of {self.path} was never acknowledged; the newest is {current} "
                f"(here: {_listed([found for found in self.versions() if found <= current])})."
            )

    @contextlib.contextmanager
    def writing(self, purpose: str, known: Snapshot) -> Iterator["Writer"]:
        """Hold the lock, and give a writer on top of the current version."""
        with self._writer_lock.held(purpose):
            snapshot = known
            if self.current_version() != known.manifest.version:
                snapshot = self.read(known=known)
            try:
                yield Writer(self, snapshot.manifest, snapshot.segments)
            except BaseException:
                # What was written for nothing takes room, which may be what was missing.
                with contextlib.suppress(OSError, IndexFolderError):
                    _collect(self, self.current_version())
                raise

    def verify(self) -> Verification:
        """Read every file of every version anew."""
        if not self.path.is_dir():
            raise IndexFolderError(f"{self.path} does not exist; give an index folder.")
        problems: list[str] = []
        entries: dict[str, FileEntry] = {}
        locks: list[ReaderLock] = []  # so that nothing is collected while we look
        versions = []
        try:
            lock, current = self._lock()
            locks.append(lock)
            found = [version for version in self.versions() if version <= current]
        except IndexFolderError as error:
            problems.append(str(error))
            found = self.versions()
        for version in found:
            path = self.manifest_path(version)
            try:
                locks.append(ReaderLock(path))
                versions.append(version)
                entries |= Manifest.decode(locks[-1].content, path).files
            except FileNotFoundError:
                continue  # collected just now
            except OSError as error:
                problems.append(str(_unreadable(path, error)))
            except IndexFolderError as error:
                problems.append(str(error))
        for name, entry in sorted(entries.items()):
            try:
                self._check(name, entry)
            except IndexFolderError as error:
                problems.append(str(error))
        num_bytes = sum(entry.size for entry in entries.values())
        return Verification(tuple(versions), len(entries), num_bytes, tuple(dict.fromkeys(problems)))

    def _open(self, manifest: Manifest, lock: ReaderLock, known: Snapshot | None) -> Snapshot:
        checked = {} if known is None else known.manifest.files
        new = {name: entry for name, entry in manifest.files.items() if checked.get(name) != entry}
        with ThreadPoolExecutor(CHECKING_THREADS) as pool:
            list(pool.map(self._check, new, new.values()))
        similarity = self._similarity(manifest) if known is None else known.similarity
        open_segments = {} if known is None else {segment.name: segment for segment in known.segments}
        open_entries = {} if known is None else {entry.name: entry for entry in known.manifest.segments}
        segments = []
        for entry in manifest.segments:
            found = open_segments.get(entry.name)
            if found is None or entry != open_entries[entry.name]:
                fresh = self.map_segment(entry)
                # The tables that engines have built do not depend on what is live.
                found = fresh if found is None else dataclasses.replace(found, is_live=fresh.is_live)
            segments.append(found)
        return Snapshot(manifest, similarity, tuple(segments), lock)

    def map_segment(self, entry: SegmentEntry) -> Segment:
        """Map one segment into memory; its files were checked before."""
        try:
            return read_segment(self.path, entry)
        except (OSError, KeyError, ValueError, RuntimeError, IndexError, TypeError) as error:
            raise IndexFolderError(
                f"segment {entry.name} of {self.path} cannot be read ({error}); restore the folder from a copy."
            ) from error

    def _similarity(self, manifest: Manifest) -> Similarity:
        try:
            return load_similarity(self.path / SIMILARITY, expected_fingerprint=manifest.fingerprint)
        except FingerprintError:
            raise
        except ModelFolderError as error:
            raise IndexFolderError(str(error)) from error

    def _check(self, name: str, entry: FileEntry) -> None:
        path = self.path / name
        try:
            size = path.stat().st_size
            if size != entry.size:
                raise IndexFolderError(
                    f"{path} has {size} bytes but should have {entry.size}: it was cut off or replaced; "
                    "restore it from a copy."
                )
            found = describe(path)
        except FileNotFoundError as error:
            raise IndexFolderError(f"{path} is missing; restore it from a copy.") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        if found != entry:
            raise IndexFolderError(f"{path} is damaged: its checksum does not hold; restore it from a copy.")

    def manifest_path(self, version: int) -> Path:
        """Where the manifest of a version is."""
        return self.path / "manifests" / f"{version:08d}.json"


class Writer:
    """Writes segments as they come, and makes a version of them with one commit."""

    def __init__(self, store: Store, base: Manifest, segments: tuple[Segment, ...]) -> None:
        self._store = store
        self._files: dict[str, FileEntry] = {}
        self.base = base
        self.segments = segments

    def keep(self, segment: Segment) -> Segment:
        """Write a segment, and give it back mapped from disk, so that its memory is free."""
        with _said_plainly(self._store.path):
            self._files |= write_segment(self._store.path, segment)
        return self._store.map_segment(_entry(segment, tombstones=None))

    def commit(self, segments: Iterable[Segment], tuned: Mapping[str, str] | None = None) -> Manifest:
        """Make a version of segments, each one that was there or that `keep` gave; durable once this returns."""
        base, folder, segments = self.base, self._store.path, list(segments)
        version = base.version + 1
        before = {segment.name: (segment, entry) for segment, entry in zip(self.segments, base.segments, strict=True)}
        entries = []
        with _said_plainly(folder):
            for segment in segments:
                old, old_entry = before.get(segment.name, (None, None))
                tombstones = None if old_entry is None else old_entry.tombstones
                if segment.is_live is not None and (old is None or old.is_live is not segment.is_live):
                    tombstones = f"tombstones/{segment.name}-{version:08d}.safetensors"
                    rows = (~segment.is_live).nonzero().flatten()  # (m,)
                    self._files[tombstones] = write_tensors(folder / tombstones, {"rows": rows})
                entries.append(_entry(segment, tombstones))
            needed = {file for entry in entries for file in entry.files}
            files = base.files | self._files
            manifest = Manifest(
                version=version,
                parent=base.version or None,
                created_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                fingerprint=base.fingerprint,
                models=base.models,
                precision=base.precision,
                num_items=sum(len(segment.live_rows) for segment in segments),
                segments=tuple(entries),
                files={
                    name: entry for name, entry in files.items() if name in needed or name.startswith(f"{SIMILARITY}/")
                },
                tuned=dict(base.tuned if tuned is None else tuned),
                source=base.source,
            )
            with new_file(self._store.manifest_path(version)) as written:
                written.write_bytes(manifest.encode())
            try:
                with new_file(folder / CURRENT) as written:
                    written.write_bytes(seal(json.dumps({"version": version}) + "\n"))
            except OSError as error:
                if not base.version or self._store.current_version() != version:
                    raise
                raise IndexFolderError(
                    f"version {version} of {folder} is in place, but whether it would outlive a power failure is not "
                    f"certain ({error.strerror}); check the disk, and call refresh() to go on."
                ) from error
        try:
            _collect(self._store, version)
        except (OSError, IndexFolderError) as error:
            logger.warning("%s: old versions could not be collected: %s", folder, error)
        return manifest


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions)) or "none"


def _unreadable(path: Path, error: OSError) -> IndexFolderError:
    return IndexFolderError(f"{path} cannot be read ({error.strerror}); check permissions and disk.")


def _entry(segment: Segment, tombstones: str | None) -> SegmentEntry:
    return SegmentEntry(segment.name, len(segment), segment.longest, tombstones, segment.metadata is not None)


def _collect(store: Store, current: int) -> None:
    """Remove versions that are too old and not read by anybody, and files that no version names."""
    kept, has_removed = [], False
    for version in store.versions():
        path = store.manifest_path(version)
        if current - KEPT_VERSIONS < version <= current or not remove_if_unread(path):
            kept.append(path)
        else:
            has_removed |= version <= current  # a later one was never acknowledged, and is ignored if it comes back
    named, segments = set(), set()
    for path in kept:
        manifest = Manifest.decode(path.read_bytes(), path)
        named |= set(manifest.files)
        segments |= {segment.name for segment in manifest.segments}
    if has_removed:
        # A power failure must not bring back a manifest whose files are gone.
        sync(store.path / "manifests")
    remove_tables(store.path, segments)
    for folder in FOLDERS:
        for path in (store.path / folder).iterdir():
            is_ours = path.suffix in {".safetensors", ".arrow"} and f"{folder}/{path.name}" not in named
            if is_ours or path.suffix == TEMPORARY:
                path.unlink(missing_ok=True)
    for path in store.path.glob(f"{CURRENT}.*{TEMPORARY}"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _said_plainly(folder: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an error that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = "free some space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "check permissions and disk"
        raise IndexFolderError(
            f"{folder} cannot be written ({error.strerror}: {error.filename or 'a file'}); {remedy} and try again. "
            "The version before is as it was."
        ) from error
