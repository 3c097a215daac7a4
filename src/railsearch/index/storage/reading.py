"""Open one version of an index: check every file, then map it into memory."""

import dataclasses
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from railsearch.folders.similarity_folder import load_similarity
from railsearch.foundation.errors import (
    FingerprintError,
    IndexFolderError,
    IndexRebuiltError,
    ModelFolderError,
    RailsearchError,
)
from railsearch.foundation.files import FileEntry
from railsearch.foundation.inputs import is_finite
from railsearch.foundation.safe_files import describe_inside, size_inside
from railsearch.index.building import one_item, prepare_similarity
from railsearch.index.engines import Origin
from railsearch.index.segment import Segment
from railsearch.index.storage.lazy_segments import open_lazily
from railsearch.index.storage.lock import ReaderLock
from railsearch.index.storage.manifest import SIMILARITY_FILES, Manifest, SegmentEntry, metadata_file, segment_file
from railsearch.index.storage.segment_files import read_segment
from railsearch.index.storage.validation import ItemForm, check_form, check_segment
from railsearch.similarity import Similarity

SIMILARITY = "similarity"
CHECKING_THREADS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version, open for reading as long as this object exists."""

    manifest: Manifest
    similarity: Similarity
    """A copy for scoring, as `prepare_similarity` returns it."""
    segments: tuple[Segment, ...]
    lock: ReaderLock

    @property
    def origin(self) -> Origin:
        """The index and the version that the items come from."""
        return Origin(self.manifest.birth, self.manifest.version, self.manifest.fingerprint)


def open_version(
    folder: Path, manifest: Manifest, lock: ReaderLock, known: Snapshot | None, *, is_lazy: bool = False
) -> Snapshot:
    """Check the files of a version and map them; files that are open and the same in `known` are not read again.

    The size of every file is checked, even if it is open: a process that reads a mapped file beyond its end is killed.
    If `is_lazy`, the tensors and the metadata of segments that have a head are checked when they are used.
    """
    if known is not None:
        check_same_index(folder, manifest, known.manifest)
    checked = {} if known is None else known.manifest.files
    lazy = {entry.name for entry in manifest.segments if is_lazy and entry.head_size}
    later = {file for name in lazy for file in (segment_file(name), metadata_file(name))}

    def check(name: str) -> None:
        is_read = name not in later and checked.get(name) != manifest.files[name]
        check_file(folder, name, manifest.files[name], has_content=is_read)

    with ThreadPoolExecutor(CHECKING_THREADS) as pool:
        list(pool.map(check, manifest.files))
    is_known_model = all(checked.get(name) == manifest.files[name] for name in SIMILARITY_FILES)
    similarity = known.similarity if known is not None and is_known_model else _read_similarity(folder, manifest)
    form = _item_form(folder, similarity, manifest)
    opened = _reusable(known, manifest)

    def open_segment(entry: SegmentEntry) -> Segment:
        found = opened.get(entry.name)
        if found is not None and found.has_same_rows:
            return found.segment
        fresh = map_segment(folder, entry, manifest.files if entry.name in lazy else None)
        if found is None:
            _check_mapped(folder, fresh, form)
            return fresh
        # Only the removed rows differ. The tables that engines have built do not depend on them.
        return dataclasses.replace(found.segment, is_live=fresh.is_live)

    segments = tuple(open_segment(entry) for entry in manifest.segments)
    num_items = sum(segment.num_live for segment in segments)
    if num_items != manifest.num_items:
        raise IndexFolderError(
            f"version {manifest.version} of {folder} has {num_items} items but its manifest states "
            f"{manifest.num_items}; restore the folder from a copy."
        )
    return Snapshot(manifest, similarity, segments, lock)


def check_same_index(folder: Path, found: Manifest, known: Manifest) -> None:
    """Refuse a version of another index that has since been built at the path of the open one."""
    if found.birth != known.birth or found.fingerprint != known.fingerprint:
        raise IndexRebuiltError(
            f"{folder} was rebuilt: index {known.birth} is open but index {found.birth} is now at this path; "
            "open it again with Index.open."
        )


def check_file(folder: Path, name: str, entry: FileEntry, *, has_content: bool = True) -> None:
    """Check the size of a file, and with `has_content` its checksum; raises IndexFolderError."""
    path = folder / name
    try:
        found = (
            describe_inside(folder, name, expected_size=entry.size)
            if has_content
            else FileEntry(size_inside(folder, name), entry.checksum)
        )
    except FileNotFoundError as error:
        raise IndexFolderError(f"{path} is missing; restore it from a copy.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if found.size != entry.size:
        raise IndexFolderError(
            f"{path} has {found.size} bytes but should have {entry.size}: it was truncated or replaced; "
            "restore it from a copy."
        )
    if found != entry:
        raise IndexFolderError(f"{path} is damaged: its checksum does not match; restore it from a copy.")


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Check the sizes of files that are mapped, before they are read again."""
    for name, entry in manifest.files.items():
        check_file(folder, name, entry, has_content=False)


def map_segment(folder: Path, entry: SegmentEntry, unchecked: Mapping[str, FileEntry] | None = None) -> Segment:
    """Map one segment into memory; its files were checked before, except for those that are `unchecked`."""
    try:
        if unchecked is None:
            return read_segment(folder, entry)
        return open_lazily(folder, entry, unchecked, lambda error: _bad_segment(folder, entry.name, error))
    except RailsearchError:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, IndexError, TypeError, RecursionError) as error:
        raise _bad_segment(folder, entry.name, error) from error


def _check_mapped(folder: Path, segment: Segment, form: ItemForm) -> None:
    """Check the relations between the values of a segment; only those of its ids if the others are checked later."""
    try:
        if segment.checks is None:
            check_segment(segment, form)
        else:
            check_form(segment, form)
    except (ValueError, RuntimeError) as error:
        raise _bad_segment(folder, segment.name, error) from error


def unreadable(path: Path, error: OSError) -> IndexFolderError:
    """Return the error for a file that the operating system does not let us read."""
    return IndexFolderError(f"{path} cannot be read ({error.strerror}); check permissions and disk.")


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A segment that is open, and whether the version to be opened has the same rows removed."""

    segment: Segment
    has_same_rows: bool


def _reusable(known: Snapshot | None, manifest: Manifest) -> dict[str, _Opened]:
    """Return by name the open segments whose files, except for the removed rows, are the same in the manifest."""
    found: dict[str, _Opened] = {}
    if known is None:
        return found
    entries = {entry.name: entry for entry in manifest.segments}
    same = {name for name, entry in manifest.files.items() if known.manifest.files.get(name) == entry}
    for segment, entry in zip(known.segments, known.manifest.segments, strict=True):
        new = entries.get(entry.name)
        if new is None or dataclasses.replace(new, tombstones=entry.tombstones) != entry:
            continue
        if all(file in same for file in entry.files if file != entry.tombstones):
            has_same_rows = new.tombstones == entry.tombstones and (new.tombstones is None or new.tombstones in same)
            found[entry.name] = _Opened(segment, has_same_rows)
    return found


def _read_similarity(folder: Path, manifest: Manifest) -> Similarity:
    try:
        similarity = load_similarity(folder / SIMILARITY, expected_fingerprint=manifest.fingerprint)
    except FingerprintError:
        raise
    except ModelFolderError as error:
        raise IndexFolderError(str(error)) from error
    for name, tensor in similarity.state_dict().items():
        if not is_finite(tensor):
            raise IndexFolderError(
                f"{folder / SIMILARITY} has NaN or infinite weights in {name}; restore the folder from a copy."
            )
    return prepare_similarity(similarity)


def _item_form(folder: Path, similarity: Similarity, manifest: Manifest) -> ItemForm:
    try:
        return ItemForm.of(one_item(similarity), manifest.precision)
    except ValueError as error:
        raise IndexFolderError(
            f"version {manifest.version} of {folder} has precision {manifest.precision!r:.80}, which is unknown; "
            "restore the folder from a copy."
        ) from error


def _bad_segment(folder: Path, name: str, error: Exception) -> IndexFolderError:
    return IndexFolderError(f"segment {name} of {folder} cannot be used ({error}); restore the folder from a copy.")
