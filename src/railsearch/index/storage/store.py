"""The index folder: versions are read whole and checked, changes are commits, old versions are collected.

    LOCK                        one writer at a time
    CURRENT                     the version that was acknowledged last
    manifests/<version>.json    what a version is made of: every file with its size and checksum
    segments/<name>.safetensors ids, components, gate, component sums; never changed
    tombstones/<name>-<version>.safetensors   rows of a segment that are no longer live
    metadata/<name>.arrow       columns that go with a segment's items
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from railsearch.errors import FingerprintError, IndexFolderError, ModelFolderError
from railsearch.files import TEMPORARY, new_file
from railsearch.index.segment import Segment
from railsearch.index.storage.lock import ReaderLock, WriterLock, remove_if_unread
from railsearch.index.storage.manifest import FileEntry, Manifest, SealBrokenError, SegmentEntry, seal, unseal
from railsearch.index.storage.segment_files import describe, read_segment, write_segment, write_tensors
from railsearch.similarity import Similarity, fingerprint, load_similarity, save_similarity

logger = logging.getLogger(__name__)

CURRENT = "CURRENT"
SIMILARITY = "similarity"
FOLDERS = ("manifests", "segments", "tombstones", "metadata")
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
        cls, folder: Path, similarity: Similarity, *, models: Sequence[str], precision: str
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
        )
        yield Writer(cls(folder), base, ())

    def read(self, version: int | None = None, known: Snapshot | None = None) -> Snapshot:
        """Open a version, the current one if none is named; what `known` has open already is not read again."""
        if not self.path.is_dir():
            raise IndexFolderError(f"{self.path} does not exist; build it with Index.build(..., path=...).")
        for _ in range(100):
            wanted = self.current_version() if version is None else version
            try:
                lock = ReaderLock(self.manifest_path(wanted))
                break
            except FileNotFoundError as error:
                # A writer may have moved on and collected this version between the two reads.
                if version is None and self.current_version() != wanted:
                    continue
                raise IndexFolderError(
                    f"{self.manifest_path(wanted)} does not exist; versions in this folder: "
                    f"{', '.join(map(str, self.versions())) or 'none'}."
                ) from error
            except OSError as error:
                raise IndexFolderError(
                    f"{self.manifest_path(wanted)} cannot be read ({error.strerror}); check permissions."
                ) from error
        else:
            raise IndexFolderError(f"{self.path} changes faster than it can be opened; try again.")
        manifest = Manifest.decode(lock.read(), self.manifest_path(wanted))
        if manifest.version != wanted:
            raise IndexFolderError(
                f"{self.manifest_path(wanted)} is the manifest of version {manifest.version}; restore it from a copy."
            )
        return self._open(manifest, lock, known)

    def current_version(self) -> int:
        """The version that was acknowledged last."""
        path = self.path / CURRENT
        remedy = f"restore it, or open a version by its number (here: {', '.join(map(str, self.versions())) or 'none'})"
        try:
            body = json.loads(unseal(path.read_bytes()))
            version = body["version"]
        except FileNotFoundError as error:
            if not (self.path / "manifests").is_dir():
                raise IndexFolderError(f"{self.path} is not a railsearch index; give another folder.") from error
            raise IndexFolderError(f"{path} is missing; {remedy}.") from error
        except OSError as error:
            raise IndexFolderError(f"{path} cannot be read ({error.strerror}); check permissions.") from error
        except (SealBrokenError, ValueError, KeyError, TypeError) as error:
            raise IndexFolderError(f"{path} is damaged: its checksum does not hold; {remedy}.") from error
        newer = [found for found in self.versions() if found > version]
        if newer and not self._writer_lock.is_held():
            logger.warning(
                "%s: version %d was begun but never acknowledged; using version %d", self.path, newer[-1], version
            )
        return int(version)

    def versions(self) -> list[int]:
        """Versions that have a manifest, oldest first."""
        folder = self.path / "manifests"
        if not folder.is_dir():
            return []
        return sorted(int(path.stem) for path in folder.iterdir() if path.suffix == ".json" and path.stem.isdigit())

    @contextlib.contextmanager
    def writing(self, purpose: str, known: Snapshot) -> Iterator["Writer"]:
        """Hold the lock, and give a writer on top of the current version."""
        with self._writer_lock.held(purpose):
            snapshot = known
            if self.current_version() != known.manifest.version:
                snapshot = self.read(known=known)
            yield Writer(self, snapshot.manifest, snapshot.segments)

    def verify(self) -> Verification:
        """Read every file of every version anew."""
        if not self.path.is_dir():
            raise IndexFolderError(f"{self.path} does not exist; give an index folder.")
        problems: list[str] = []
        entries: dict[str, FileEntry] = {}
        versions = self.versions()
        try:
            current = self.current_version()
            versions = [version for version in versions if version <= current]
            if current not in versions:
                problems.append(f"{self.manifest_path(current)} does not exist")
        except IndexFolderError as error:
            problems.append(str(error))
        for version in versions:
            path = self.manifest_path(version)
            try:
                entries |= Manifest.decode(path.read_bytes(), path).files
            except FileNotFoundError:
                continue  # collected while we looked
            except (OSError, IndexFolderError) as error:
                problems.append(str(error))
        for name, entry in sorted(entries.items()):
            try:
                self._check(name, entry)
            except IndexFolderError as error:
                problems.append(str(error))
        num_bytes = sum(entry.size for entry in entries.values())
        return Verification(tuple(versions), len(entries), num_bytes, tuple(problems))

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
            raise IndexFolderError(f"{path} cannot be read ({error.strerror}); check permissions and disk.") from error
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

    def commit(self, segments: Sequence[Segment], tuned: Mapping[str, str] | None = None) -> Manifest:
        """Make a version of segments, each one that was there or that `keep` gave; durable once this returns."""
        base, folder = self.base, self._store.path
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
                files={name: entry for name, entry in files.items() if _is_named(name, entries)},
                tuned=dict(base.tuned if tuned is None else tuned),
            )
            with new_file(self._store.manifest_path(version)) as written:
                written.write_bytes(manifest.encode())
            with new_file(folder / CURRENT) as written:
                written.write_bytes(seal(json.dumps({"version": version}) + "\n"))
        try:
            _collect(self._store, version)
        except (OSError, IndexFolderError) as error:
            logger.warning("%s: old versions could not be collected: %s", folder, error)
        return manifest


def _entry(segment: Segment, tombstones: str | None) -> SegmentEntry:
    return SegmentEntry(segment.name, len(segment), segment.longest, tombstones, segment.metadata is not None)


def _is_named(file: str, entries: Sequence[SegmentEntry]) -> bool:
    """Whether a version with these segments needs a file."""
    folder, _, name = file.partition("/")
    if folder == "tombstones":
        return any(entry.tombstones == file for entry in entries)
    return folder == SIMILARITY or any(entry.name == name.partition(".")[0] for entry in entries)


def _collect(store: Store, current: int) -> None:
    """Remove versions that are too old and not read by anybody, and files that no version names."""
    kept = []
    for version in store.versions():
        path = store.manifest_path(version)
        if current - KEPT_VERSIONS < version <= current or not remove_if_unread(path):
            kept.append(path)
    named = set()
    for path in kept:
        named |= set(Manifest.decode(path.read_bytes(), path).files)
    for folder in FOLDERS:
        for path in (store.path / folder).iterdir():
            is_ours = path.suffix in {".safetensors", ".arrow"} and f"{folder}/{path.name}" not in named
            if is_ours or path.suffix == TEMPORARY:
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
    except SafetensorError as error:
        raise IndexFolderError(
            f"{folder} cannot be written ({error}); free some space, check permissions, and try again. "
            "The version before is as it was."
        ) from error
