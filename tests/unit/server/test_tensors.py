"""Searches as safetensors: what is read, and what is refused."""

import json
import struct

import pytest
import torch
from safetensors.torch import save

from railsearch.errors import InvalidInputError
from railsearch.server.json_text import MalformedError
from railsearch.server.tensors import read_search

EMBEDDINGS = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
WRAPPED = [0, 2**63 - 1, -(2**63), -1, 3]
"""Offsets whose differences overflow to positive numbers."""


def packed(settings: object = None, **tensors: torch.Tensor) -> bytes:
    text = settings if isinstance(settings, str) else json.dumps(settings or {})
    return save(tensors, metadata={"settings": text})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_search_is_read(dtype: torch.dtype) -> None:
    found = read_search(packed({"k": 3}, embeddings=EMBEDDINGS.to(dtype)))
    assert found["k"] == 3
    assert torch.equal(found["embeddings"], EMBEDDINGS.to(dtype))


@pytest.mark.parametrize("embeddings", [torch.ones(1, 4).to(torch.float8_e4m3fn), torch.tensor(1.0)])
def test_embeddings_of_another_kind(embeddings: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match="give rows of F32, F64, F16 or BF16 values"):
        read_search(packed(embeddings=embeddings))


def test_lists_of_ids() -> None:
    offsets = torch.tensor([0, 2, 3])
    found = read_search(
        packed(embeddings=EMBEDDINGS, exclude=torch.tensor([4, 5, 6]), exclude_offsets=offsets, allow=torch.tensor([1]))
    )
    assert (found["exclude"], found["allow"]) == ([[4, 5], [6]], [1])


@pytest.mark.parametrize("offsets", [[], [0], [0, 2], [1, 3], [0, 4, 3], [0, 2, 1, 3], [0, -1, 3], WRAPPED])
def test_wrong_offsets(offsets: list[int]) -> None:
    tensor = torch.tensor(offsets, dtype=torch.int64)
    with pytest.raises(InvalidInputError, match="exclude_offsets"):
        read_search(packed(embeddings=EMBEDDINGS, exclude=torch.tensor([4, 5, 6]), exclude_offsets=tensor))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\0" * 7, "truncated"),
        (struct.pack("<Q", 2**63), "truncated or too large"),
        (struct.pack("<Q", 3) + b"abc", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, "not JSON"),
        (packed(embeddings=EMBEDDINGS)[:-3], "not safetensors"),
        (packed("[]", embeddings=EMBEDDINGS), "JSON array"),
        (packed("{", embeddings=EMBEDDINGS), "not JSON"),
    ],
    ids=["empty", "seven-bytes", "huge-length", "no-json", "no-object", "deep", "cut-off", "array", "half-json"],
)
def test_broken_files(content: bytes, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        read_search(content)


def test_unknown_and_repeated_tensors() -> None:
    with pytest.raises(InvalidInputError, match="'other' is not a tensor of a search"):
        read_search(packed(other=EMBEDDINGS))
    with pytest.raises(InvalidInputError, match="both a tensor and a setting"):
        read_search(packed({"allow": [1]}, allow=torch.tensor([1])))
    with pytest.raises(InvalidInputError, match="allow has shape"):
        read_search(packed(allow=EMBEDDINGS))
    with pytest.raises(InvalidInputError, match="exclude_offsets is missing"):
        read_search(packed(exclude=torch.tensor([1])))
