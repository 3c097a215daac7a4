"""Segments as files: safetensors that are mapped into memory, so that processes share the pages."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.files import FileEntry, describe, new_file
from railsearch.index.engines import Tables
from railsearch.index.metadata import Metadata
from railsearch.index.segment import Segment
from railsearch.index.storage.manifest import SegmentEntry, metadata_file, segment_file
from railsearch.index.storage.table_files import TableFiles
from railsearch.similarity import ItemParts

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


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
    if len(tensors["ids"]) != entry.num_rows:
        raise ValueError(f"it has {len(tensors['ids'])} rows but should have {entry.num_rows}")
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
        tables=Tables(TableFiles(folder)),
    )


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> FileEntry:
    """Write tensors durably as a safetensors file, and say what it is like.

    Written here and not by safetensors, whose `save_file` writes to a hidden name of its own, which a kill leaves
    behind, and lets no other user read the file.
    """
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # so that each is aligned
    header, offset = {}, 0
    for name, tensor in ordered:
        end = offset + tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with new_file(path) as written, written.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
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
