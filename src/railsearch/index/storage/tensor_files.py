"""Tensors as safetensors files that are mapped into memory, so that processes share the pages.

They are written here and not by safetensors, whose `save_file` writes to a hidden temporary file that stays if the
process is killed, and that no other user can read. They are read here because safetensors copies what it reads.
"""

import json
import math
import mmap
import os
from pathlib import Path

import torch
from torch import Tensor

from railsearch.foundation.files import FileEntry, describe, new_file
from railsearch.foundation.safe_files import open_inside

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LARGEST_HEADER = 2**20


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> FileEntry:
    """Write tensors durably as a safetensors file, and return its size and checksum."""
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # keeps every tensor aligned
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


def tensors_begin(path: Path) -> int:
    """Return the place of the first tensor in a file that `write_tensors` wrote."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def map_file(folder: Path, name: str) -> Tensor:
    """Map a regular file inside a folder into memory, and return its bytes.

    The map is private: tensors count as writable, but no write reaches the file.
    """
    descriptor = open_inside(folder, name)
    try:
        return map_open(descriptor, name)
    finally:
        os.close(descriptor)


def map_open(descriptor: int, name: str) -> Tensor:
    """Map a file that is open, and return its bytes; the name is for errors."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise ValueError(f"{name} is empty")
    mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return torch.frombuffer(mapped, dtype=torch.uint8)  # (bytes,)


def map_tensors(folder: Path, name: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file as views of one memory map; raises ValueError if they do not fit it.

    Pages are read when they are touched.
    """
    return tensors_in(map_file(folder, name), name)


def tensors_in(data: Tensor, name: str) -> dict[str, Tensor]:
    """Return views of the tensors in the bytes (n,) of a safetensors file; raises ValueError if they do not fit it."""
    header_size = int.from_bytes(bytes(data[:8].tolist()), "little") if len(data) >= 8 else 0
    if not 2 <= header_size <= min(LARGEST_HEADER, len(data) - 8):
        raise ValueError(f"{name} has a header of {header_size} bytes in a file of {len(data)}")
    header = json.loads(bytes(data[8 : 8 + header_size].numpy()))
    if not isinstance(header, dict):
        raise ValueError(f"the header of {name} is not a table")
    header.pop("__metadata__", None)
    values = data[8 + header_size :]
    places = {key: _place(key, entry) for key, entry in header.items()}
    ends = sorted((first, last) for first, last, _, _ in places.values())
    if [0, *(last for _, last in ends)] != [*(first for first, _ in ends), len(values)]:
        raise ValueError(f"the tensors of {name} overlap, leave gaps, or do not fill its {len(values)} bytes of values")
    return {key: values[first:last].view(dtype).view(shape) for key, (first, last, dtype, shape) in places.items()}


def _place(key: str, entry: dict[str, object]) -> tuple[int, int, torch.dtype, list[int]]:
    """Return the first byte, the end, the type and the shape that a header states of one tensor."""
    dtype, shape, offsets = DTYPES.get(str(entry["dtype"])), _counts(entry["shape"]), _counts(entry["data_offsets"])
    if dtype is None or len(offsets) != 2:
        raise ValueError(f"tensor {key!r:.80} is of type {entry['dtype']!r:.80} and lies at {offsets!r:.80}")
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {key!r:.80} of shape {shape!r:.80} cannot lie at {offsets!r:.80}")
    return offsets[0], offsets[1], dtype, shape


def _counts(values: object) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 2**62 for value in values):
        raise ValueError(f"{values!r:.80} is not a list of counts")
    return values
