"""Verification of an index folder: read every file of every version and list all problems."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from railsearch.foundation.errors import IndexFolderError, RailsearchError
from railsearch.foundation.files import FileEntry
from railsearch.foundation.safe_files import others_inside
from railsearch.index.storage.lock import ReaderLock
from railsearch.index.storage.manifest import Manifest
from railsearch.index.storage.places import MANIFESTS, find_versions, manifest_file
from railsearch.index.storage.reading import Snapshot, check_file, open_version, unreadable


@dataclass(frozen=True, slots=True)
class Verification:
    """The versions and files that were read, and the problems that were found."""

    versions: tuple[int, ...]
    num_files: int
    num_bytes: int
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def verify_versions(folder: Path, current: int | None) -> Verification:
    """Read all versions up to the current one, or all if there is no valid pointer to one."""
    problems = [
        f"{folder / MANIFESTS / name} is not a regular file; remove it, and restore the file from a copy."
        for name in others_inside(folder, MANIFESTS)
        if current is not None  # otherwise the caller reports the current manifest
    ]
    entries: dict[str, FileEntry] = {}
    opened: list[tuple[Manifest, ReaderLock]] = []  # cleanup leaves locked versions alone
    versions = []
    for version in find_versions(folder):
        if current is not None and version > current:
            continue
        name = manifest_file(version)
        try:
            lock = ReaderLock(folder, name)
            versions.append(version)
            opened.append((Manifest.decode(lock.content, folder / name), lock))
            entries |= opened[-1][0].files
        except FileNotFoundError:
            continue  # removed just now
        except OSError as error:
            problems.append(str(unreadable(folder / name, error)))
        except IndexFolderError as error:
            problems.append(str(error))
    damaged = set()
    for name, entry in sorted(entries.items()):
        try:
            check_file(folder, name, entry)
        except IndexFolderError as error:
            damaged.add(name)
            problems.append(str(error))
    known: Snapshot | None = None
    for manifest, lock in opened:
        if damaged.isdisjoint(manifest.files):
            try:
                known = open_version(folder, manifest, lock, known)
                check_unique(folder, known)
                for segment in known.segments:
                    if segment.metadata is not None:
                        segment.metadata.frame  # noqa: B018  (reads it)
            except RailsearchError as error:
                problems.append(str(error))
    num_bytes = sum(entry.size for entry in entries.values())
    return Verification(tuple(versions), len(entries), num_bytes, tuple(dict.fromkeys(problems)))


def check_unique(folder: Path, snapshot: Snapshot) -> None:
    """Refuse a version in which two segments hold live items of the same id."""
    live = [segment.ids[segment.live_rows] for segment in snapshot.segments]
    live = sorted((ids for ids in live if len(ids)), key=lambda ids: int(ids[0]))
    if all(int(before[-1]) < int(after[0]) for before, after in pairwise(live)):
        return
    ids = torch.cat(live).sort().values  # (M,)
    is_repeated = ids[1:] == ids[:-1]  # (M - 1,)
    if bool(is_repeated.any()):
        raise IndexFolderError(
            f"version {snapshot.manifest.version} of {folder} holds id {int(ids[1:][is_repeated][0])} more than "
            "once; restore the folder from a copy."
        )
