"""Cleanup of an index folder: remove old versions that no reader has open, and files that no version names."""

from collections.abc import Iterable
from pathlib import Path

from railsearch.foundation.files import TEMPORARY, sync
from railsearch.foundation.safe_files import files_inside, read_inside, remove_inside
from railsearch.index.storage.lock import remove_if_unread
from railsearch.index.storage.manifest import Manifest
from railsearch.index.storage.places import CURRENT, FOLDERS, MANIFESTS, manifest_file
from railsearch.index.storage.table_files import remove_tables

KEPT_VERSIONS = 3
"""Versions that stay: the newest and those before it. Older ones stay only as long as a reader has them open."""
SUFFIXES = (".safetensors", ".arrow")


def clean_up(folder: Path, versions: Iterable[int], current: int) -> None:
    """Remove what is no longer needed; only regular files inside the folder are touched, and only by the writer."""
    kept, has_removed = [], False
    for version in versions:
        name = manifest_file(version)
        if current - KEPT_VERSIONS < version <= current or not remove_if_unread(folder, name):
            kept.append(name)
        else:
            has_removed |= version <= current  # a later one was never acknowledged, and is ignored if it comes back
    named, segments = set(), set()
    for name in kept:
        manifest = Manifest.decode(read_inside(folder, name), folder / name)
        named |= set(manifest.files)
        segments |= {segment.name for segment in manifest.segments}
    if has_removed:
        # A power failure must not bring back a manifest whose files are gone.
        sync(folder / MANIFESTS)
    remove_tables(folder, segments)
    for place in FOLDERS:
        for file in files_inside(folder, place):
            name = f"{place}/{file}"
            if file.endswith(TEMPORARY) or (file.endswith(SUFFIXES) and name not in named):
                remove_inside(folder, name)
    for file in files_inside(folder):
        if file.startswith(f"{CURRENT}.") and file.endswith(TEMPORARY):
            remove_inside(folder, file)
