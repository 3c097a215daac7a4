"""Segments as files: tensors, metadata and removed rows."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from railsearch.foundation.files import FileEntry, describe, describe_start, new_file
from railsearch.index.engines import Tables
from railsearch.index.metadata import Metadata
from railsearch.index.segment import Segment
from railsearch.index.storage.blocks import BLOCK_BYTES, CHECKSUMS, IDS, block_checksums
from railsearch.index.storage.manifest import SegmentEntry, metadata_file, segment_file
from railsearch.index.storage.table_files import TableFiles
from railsearch.index.storage.tensor_files import map_file, map_tensors, tensors_begin, write_tensors
from railsearch.similarity import ItemParts

TENSORS = {"ids", "components", "sums"}


def write_segment(folder: Path, segment: Segment) -> tuple[SegmentEntry, dict[str, FileEntry]]:
    """Write a segment's own files durably; the rows that are no longer live are written separately."""
    parts, metadata = segment.parts, segment.metadata
    tensors = {"components": parts.components, "sums": segment.sums}
    if parts.gate is not None:
        tensors["gate"] = parts.gate
    path = folder / segment_file(segment.name)
    head = {
        CHECKSUMS: block_checksums(tensors, BLOCK_BYTES),
        IDS: segment.ids,
    }  # they come first in the file
    files = {segment_file(segment.name): write_tensors(path, head | tensors)}
    head_size = tensors_begin(path) + sum(tensor.nbytes for tensor in head.values())
    entry = SegmentEntry(
        name=segment.name,
        num_rows=len(segment),
        longest=segment.longest,
        tombstones=None,
        has_metadata=metadata is not None,
        has_keys=metadata is not None and metadata.has_keys,
        head_size=head_size,
        head_checksum=describe_start(path, head_size),
        block_bytes=BLOCK_BYTES,
    )
    if metadata is not None:
        path = folder / metadata_file(segment.name)
        with new_file(path) as written:
            metadata.write(written)
        files[metadata_file(segment.name)] = describe(path)
    return entry, files


def write_tombstones(path: Path, is_live: Tensor) -> FileEntry:
    """Write the rows that are no longer live."""
    return write_tensors(path, {"rows": (~is_live).nonzero().flatten()})


def read_segment(folder: Path, entry: SegmentEntry) -> Segment:
    """Map a segment into memory; raises ValueError if its tensors are not those of a segment.

    `check_segment` checks the relations between its values.
    """
    return segment_of(folder, entry, map_tensors(folder, segment_file(entry.name)))


def segment_of(
    folder: Path, entry: SegmentEntry, tensors: Mapping[str, Tensor], unchecked: Mapping[str, FileEntry] | None = None
) -> Segment:
    """Return the segment of the tensors in its file; its metadata is checked when it is read, if it is `unchecked`."""
    if tensors.keys() - {"gate", CHECKSUMS} != TENSORS:
        raise ValueError(f"it holds {', '.join(sorted(tensors))}, but {', '.join(sorted(TENSORS))} are needed")
    for name, tensor in tensors.items():
        if name == CHECKSUMS:
            continue
        if tensor.ndim == 0 or len(tensor) != entry.num_rows:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {entry.num_rows} rows are needed")
    return Segment(
        name=entry.name,
        ids=tensors["ids"],
        stored_parts=ItemParts(tensors["components"], tensors.get("gate")),
        stored_sums=tensors["sums"],
        longest=entry.longest,
        metadata=_read_metadata(folder, entry, unchecked),
        is_live=None if entry.tombstones is None else _read_tombstones(folder, entry.tombstones, entry.num_rows),
        tables=Tables(TableFiles(folder)),
    )


def _read_tombstones(folder: Path, file: str, num_rows: int) -> Tensor:
    tensors = map_tensors(folder, file)
    rows = tensors.get("rows")
    if rows is None or len(tensors) != 1 or rows.dtype != torch.int64 or rows.ndim != 1:
        raise ValueError(f"{file} does not hold the removed rows")
    is_ascending = bool((rows[1:] > rows[:-1]).all())
    if len(rows) and not (is_ascending and int(rows[0]) >= 0 and int(rows[-1]) < num_rows):
        raise ValueError(f"{file} lists rows that are not ascending, or not among the {num_rows} rows of its segment")
    is_live = torch.ones(num_rows, dtype=torch.bool)  # (n,)
    is_live[rows] = False
    return is_live


def _read_metadata(folder: Path, entry: SegmentEntry, unchecked: Mapping[str, FileEntry] | None) -> Metadata | None:
    if not entry.has_metadata:
        return None
    file = metadata_file(entry.name)
    return Metadata.from_file(
        map_file(folder, file).numpy(),
        path=folder / file,
        num_rows=entry.num_rows,
        has_keys=entry.has_keys,
        checksum=None if unchecked is None else unchecked[file].checksum,
    )
