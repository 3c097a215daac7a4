"""A list of the tables of engines that an index folder keeps, with the state of each and the versions that use it."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import xxhash

from railsearch.foundation.files import BYTES_PER_CHUNK
from railsearch.foundation.safe_files import files_inside, open_inside
from railsearch.index.engines.tables import BYTES_PER_ROW, SPARE_BYTES
from railsearch.index.storage.manifest import Manifest, segment_file
from railsearch.index.storage.table_files import CHECKSUM_BYTES, FOLDER, MOST_HEADER_BYTES, SUFFIX

UNKNOWN_ENGINE = "unknown"


class TableState(StrEnum):
    """The state of a table on disk. Only an intact one can be used; any other is built again when it is needed."""

    INTACT = "intact"
    DAMAGED = "damaged"
    UNUSED = "unused"
    """No version has its segment; the next cleanup removes it."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table of an engine on disk."""

    file: str
    """Its name inside the index folder."""
    engine: str
    """The key of the engine that built it, or "unknown" if the file does not state it."""
    num_bytes: int
    state: TableState
    versions: tuple[int, ...] = ()
    """The versions that have its segment, oldest first."""


def verify_tables(folder: Path, manifests: Sequence[Manifest]) -> tuple[StoredTable, ...]:
    """List all tables, and check every byte of those that a version may use."""
    found = []
    for name in _table_names(folder):
        file, segment = f"{FOLDER}/{name}", name.partition(".")[0]
        owners = [manifest for manifest in manifests if segment_file(segment) in manifest.files]
        largest = max((_largest_size(manifest, segment) for manifest in owners), default=0)
        try:
            engine, num_bytes, is_intact = _examine(folder, file, largest=largest)
        except OSError:
            engine, num_bytes, is_intact = UNKNOWN_ENGINE, 0, False  # removed just now, or not readable
        state = TableState.UNUSED if not owners else TableState.INTACT if is_intact else TableState.DAMAGED
        versions = tuple(sorted(manifest.version for manifest in owners))
        found.append(StoredTable(file, engine, num_bytes, state, versions))
    return tuple(found)


def summarise_tables(folder: Path, segments: set[str]) -> list[str]:
    """Return one line for each engine that has tables of these segments; their content is not checked."""
    sizes: dict[str, list[int]] = {}
    for name in _table_names(folder):
        if name.partition(".")[0] in segments:
            try:
                engine, num_bytes, _ = _examine(folder, f"{FOLDER}/{name}", largest=0)
            except OSError:
                continue
            sizes.setdefault(engine, []).append(num_bytes)
    return [f"{engine}: {len(own)} tables of {sum(own):,} bytes" for engine, own in sorted(sizes.items())]


def _table_names(folder: Path) -> list[str]:
    try:
        return [name for name in files_inside(folder, FOLDER) if name.endswith(SUFFIX)]
    except OSError:
        return []  # there are no tables, or something else has that name


def _largest_size(manifest: Manifest, segment: str) -> int:
    """Return a size that no table of a segment exceeds: a larger file is never read."""
    num_rows = next(entry.num_rows for entry in manifest.segments if entry.name == segment)
    vectors = manifest.files[segment_file(segment)].size
    return SPARE_BYTES + num_rows * BYTES_PER_ROW + 2 * vectors + MOST_HEADER_BYTES


def _examine(folder: Path, file: str, *, largest: int) -> tuple[str, int, bool]:
    """Return the engine and the size of a table, and whether it is intact; a larger file counts as damaged."""
    with os.fdopen(open_inside(folder, file), "rb") as opened:
        num_bytes = os.fstat(opened.fileno()).st_size
        stated = opened.read(CHECKSUM_BYTES)
        header = opened.readline(MOST_HEADER_BYTES)
        is_intact = False
        if num_bytes <= largest:
            digest = xxhash.xxh3_128(header)
            while chunk := opened.read(BYTES_PER_CHUNK):
                digest.update(chunk)
            is_intact = stated == digest.hexdigest().encode() + b"\n"
    return _engine_of(header), num_bytes, is_intact


def _engine_of(header: bytes) -> str:
    try:
        described = json.loads(header)
    except (ValueError, RecursionError):
        return UNKNOWN_ENGINE
    engine = described.get("engine") if isinstance(described, dict) else None
    return engine[:200] if isinstance(engine, str) and engine else UNKNOWN_ENGINE
