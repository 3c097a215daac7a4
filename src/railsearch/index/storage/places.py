"""The layout of an index folder.

    LOCK                        one writer at a time
    CURRENT                     the version that was acknowledged last
    manifests/<version>.json    every file of a version with its size and checksum
    segments/<name>.safetensors ids, components, gate, component sums; never changed
    tombstones/<name>-<version>.safetensors   rows of a segment that are no longer live
    metadata/<name>.arrow       columns that go with a segment's items, among them string ids
    tables/                     tables of engines, a cache: see table_files.py
    similarity/                 the model folder

A change writes new files, then a manifest, then CURRENT; each to a temporary name that is synced and renamed. Until
CURRENT is in place nothing has changed; once it is, nothing can be lost. Files that no manifest names are ignored.
"""

import json
import re
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.safe_files import files_inside, folder_inside, read_inside
from railsearch.index.storage.manifest import SealBrokenError, seal, unseal
from railsearch.index.storage.reading import unreadable

CURRENT = "CURRENT"
MANIFESTS = "manifests"
FOLDERS = (MANIFESTS, "segments", "tombstones", "metadata")
MANIFEST_NAME = re.compile(r"[0-9]{8,18}\.json")
LARGEST_POINTER = 4096
"""Bytes of CURRENT."""


def manifest_file(version: int) -> str:
    """Return the name of the manifest of a version."""
    return f"{MANIFESTS}/{version:08d}.json"


def pointer(version: int) -> bytes:
    """Return the content of CURRENT."""
    return seal(json.dumps({"version": version}) + "\n")


def current_version(folder: Path) -> int:
    """Return the version that was acknowledged last."""
    path = folder / CURRENT
    try:
        version = json.loads(unseal(read_inside(folder, CURRENT, largest=LARGEST_POINTER)))["version"]
        if type(version) is not int or version < 1:
            raise TypeError(version)
    except FileNotFoundError as error:
        raise _lost(folder, "is missing") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except (SealBrokenError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _lost(folder, "is damaged: its checksum does not match") from error
    return version


def find_versions(folder: Path) -> list[int]:
    """List the versions that have a manifest, oldest first."""
    try:
        names = files_inside(folder, MANIFESTS)
    except OSError as error:
        raise unreadable(folder / MANIFESTS, error) from error
    return sorted(int(name.partition(".")[0]) for name in names if MANIFEST_NAME.fullmatch(name))


def list_versions(versions: list[int]) -> str:
    """Return the versions as text for messages."""
    return ", ".join(map(str, versions)) or "none"


def check_is_index(folder: Path) -> None:
    """Refuse a path that is not the folder of an index."""
    try:
        is_there, is_folder = folder.exists(), folder.is_dir()
        is_index = is_folder and (folder / MANIFESTS).is_dir()
    except OSError as error:
        raise unreadable(folder, error) from error
    if not is_there:
        raise IndexFolderError(f"{folder} does not exist; build it with Index.build(..., path=...).")
    if not is_folder:
        raise IndexFolderError(f"{folder} is a file; give the folder of an index.")
    if not is_index:
        raise IndexFolderError(f"{folder} is not a railsearch index; give another folder.")


def check_folders(folder: Path) -> None:
    """Check that everything would be written inside the folder; raises OSError if a part of it is a link."""
    for name in FOLDERS:
        with folder_inside(folder, name):
            pass


def _lost(folder: Path, state: str) -> IndexFolderError:
    versions = list_versions(find_versions(folder))
    return IndexFolderError(
        f"{folder / CURRENT} {state}; restore it, or open a version by its number (here: {versions})."
    )
