"""Verification of an index folder: read every file of every version, and list all problems with their versions."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from railsearch.foundation.errors import IndexFolderError, RailsearchError
from railsearch.foundation.files import FileEntry
from railsearch.foundation.safe_files import others_inside
from railsearch.index.keys import check_keys
from railsearch.index.storage.lock import ReaderLock
from railsearch.index.storage.manifest import Manifest
from railsearch.index.storage.places import MANIFEST_NAME, MANIFESTS, find_versions, manifest_file
from railsearch.index.storage.reading import Snapshot, check_file, map_segment, open_version, unreadable
from railsearch.index.storage.table_listing import StoredTable, verify_tables


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and the versions that cannot be used because of it.

    >>> print(Problem("segments/a is missing.", file="segments/a", versions=(1, 2), is_current=False))
    segments/a is missing. Affects versions 1 and 2, but not the current one.
    """

    message: str
    file: str | None = None
    """The damaged file, inside the folder; None if the problem is not in a single file."""
    versions: tuple[int, ...] = ()
    """The versions that need it, oldest first."""
    is_current: bool | None = None
    """Whether the current version is among them; None if it is unknown which version is current."""

    def __str__(self) -> str:
        if not self.versions:
            return self.message
        *others, last = map(str, self.versions)
        listed = f"versions {', '.join(others)} and {last}" if others else f"version {last}"
        state = {True: ", the current one", False: ", but not the current one", None: ""}[self.is_current]
        return f"{self.message} Affects {listed}{state}."


@dataclass(frozen=True, slots=True)
class Verification:
    """The versions and files that were read, and the problems that were found."""

    versions: tuple[int, ...]
    num_files: int
    num_bytes: int
    problems: tuple[Problem, ...]
    tables: tuple[StoredTable, ...] = ()
    """Tables of engines in the folder. They are a cache: a damaged one is built again and is not a problem."""

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


class _Findings:
    """Problems by their message and file, with the versions of each."""

    def __init__(self, current: int | None) -> None:
        self._current = current
        self._versions: dict[tuple[str, str | None], set[int]] = defaultdict(set)

    def add(self, message: object, *versions: int, file: str | None = None) -> None:
        self._versions[str(message), file].update(versions)

    def problems(self) -> tuple[Problem, ...]:
        return tuple(
            Problem(message, file, tuple(sorted(own)), None if self._current is None else self._current in own)
            for (message, file), own in self._versions.items()
        )


def verify_versions(folder: Path, current: int | None) -> Verification:
    """Read all versions up to the current one, or all if there is no valid pointer to one."""
    findings = _Findings(current)
    for name in others_inside(folder, MANIFESTS) if current is not None else []:  # else the caller reports the current
        own = [int(name.partition(".")[0])] if MANIFEST_NAME.fullmatch(name) else []
        message = f"{folder / MANIFESTS / name} is not a regular file; remove it, and restore the file from a copy."
        findings.add(message, *own, file=f"{MANIFESTS}/{name}")
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
        except FileNotFoundError:
            continue  # removed just now
        except OSError as error:
            findings.add(unreadable(folder / name, error), version, file=name)
        except IndexFolderError as error:
            findings.add(error, version, file=name)
    manifests = [manifest for manifest, _ in opened]
    entries, damaged = _check_files(folder, manifests, findings)
    known: Snapshot | None = None
    for manifest, lock in opened:
        if damaged.isdisjoint(manifest.files):
            try:
                known = open_version(folder, manifest, lock, known)
                check_unique(folder, known)
                check_keys(known.segments)
                _check_blocks(folder, manifest)
                for segment in known.segments:
                    if segment.metadata is not None:
                        segment.metadata.frame  # noqa: B018  (reads it)
            except RailsearchError as error:
                findings.add(error, manifest.version)
    return Verification(
        versions=tuple(versions),
        num_files=len(entries),
        num_bytes=sum(entry.size for entry in entries.values()),
        problems=findings.problems(),
        tables=verify_tables(folder, manifests),
    )


def _check_files(folder: Path, manifests: list[Manifest], findings: _Findings) -> tuple[dict[str, FileEntry], set[str]]:
    """Check every file that a manifest names; return their entries, and the names of those that are damaged."""
    entries: dict[str, FileEntry] = {}
    for manifest in manifests:
        entries |= manifest.files
    damaged = set()
    for name, entry in sorted(entries.items()):
        try:
            check_file(folder, name, entry)
        except IndexFolderError as error:
            damaged.add(name)
            findings.add(error, *(manifest.version for manifest in manifests if name in manifest.files), file=name)
    return entries, damaged


def _check_blocks(folder: Path, manifest: Manifest) -> None:
    """Check that the checksums of blocks, on which `verify="lazy"` relies, are those of the values."""
    for entry in manifest.segments:
        if entry.head_size:
            checks = map_segment(folder, entry, manifest.files).checks
            assert checks is not None
            checks.check_all()


def check_unique(folder: Path, snapshot: Snapshot) -> None:
    """Refuse a version in which two segments hold live items of the same id."""
    live = [own.ids if own.is_live is None else own.ids[own.live_rows] for own in snapshot.segments]
    live = sorted((ids for ids in live if len(ids)), key=lambda ids: int(ids[0]))
    if all(int(before[-1]) < int(after[0]) for before, after in pairwise(live)):
        return
    ids = torch.from_numpy(np.sort(torch.cat(live).numpy(), kind="stable"))  # (M,) merges ascending runs
    is_repeated = ids[1:] == ids[:-1]  # (M - 1,)
    if bool(is_repeated.any()):
        raise IndexFolderError(
            f"version {snapshot.manifest.version} of {folder} holds id {int(ids[1:][is_repeated][0])} more than "
            "once; restore the folder from a copy."
        )
