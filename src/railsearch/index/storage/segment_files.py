"""Segments as files: safetensors that are mapped into memory, so that processes share the pages."""

import json
import mmap
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import xxhash
from torch import Tensor

from railsearch.files import new_file
from railsearch.index.metadata import Metadata
from railsearch.index.segment import Segment
from railsearch.index.storage.manifest import FileEntry, SegmentEntry
from railsearch.similarity import ItemParts

BYTES_PER_CHUNK = 2**24
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}


def segment_file(name: str) -> str:
    """Where a segment's tensors are."""
    return f"segments/{name}.safetensors"


def metadata_file(name: str) -> str:
    """Where a segment's metadata is."""
    return f"metadata/{name}.arrow"


def write_segment(folder: Path, segment: Segment) -> dict[str, FileEntry]:
    """Write a segment's own files, durably; which of its rows are live is written apart."""
    tensors = {"ids": segment.ids, "components": segment.parts.components, "sums": segment.sums}
    if segment.parts.gate is not None:
        tensors["gate"] = segment.parts.gate
    entries = {segment_file(segment.name): write_tensors(folder / segment_file(segment.name), tensors)}
    if segment.metadata is not None:
        path = folder / metadata_file(segment.name)
        with new_file(path) as written:
            segment.metadata.write(written)
        entries[metadata_file(segment.name)] = describe(path)
    return entries


def read_segment(folder: Path, entry: SegmentEntry) -> Segment:
    """Map a segment into memory; its files were checked before."""
    tensors = map_tensors(folder / segment_file(entry.name))
    is_live = None
    if entry.tombstones is not None:
        is_live = torch.ones(entry.num_rows, dtype=torch.bool)  # (n,)
        is_live[map_tensors(folder / entry.tombstones)["rows"]] = False
    return Segment(
        name=entry.name,
        ids=tensors["ids"],
        parts=ItemParts(tensors["components"], tensors.get("gate")),
        sums=tensors["sums"],
        longest=entry.longest,
        metadata=Metadata(folder / metadata_file(entry.name)) if entry.has_metadata else None,
        is_live=is_live,
    )


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> FileEntry:
    """Write tensors durably, and say what the file is like."""
    with new_file(path) as written:
        safetensors.torch.save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, written)
    return describe(path)


def map_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, as views of one memory map: pages are read when they are touched."""
    # Copy on write: tensors count as writable, yet nothing can reach the file.
    data = torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c"))  # (bytes,)
    header_size = int.from_bytes(bytes(data[:8].tolist()), "little")
    header = json.loads(bytes(data[8 : 8 + header_size].numpy()))
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (8 + header_size + offset for offset in entry["data_offsets"])
            tensors[name] = data[first:last].view(DTYPES[entry["dtype"]]).view(entry["shape"])
    return tensors


def describe(path: Path) -> FileEntry:
    """Size and checksum of a file; xxh3 runs at the speed of memory, so that it can be checked at every open."""
    digest = xxhash.xxh3_128()
    size = path.stat().st_size
    if size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            for first in range(0, size, BYTES_PER_CHUNK):
                digest.update(view[first : first + BYTES_PER_CHUNK])
            view.release()
    return FileEntry(size, digest.hexdigest())
