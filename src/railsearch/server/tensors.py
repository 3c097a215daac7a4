"""Searches as safetensors: embeddings in, ids and scores out, without the cost of decimal numbers."""

import json

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.results import SearchResult
from railsearch.server.json_text import MalformedError, read_object, write_json

MEDIA_TYPE = "application/x-safetensors"
SETTINGS, ANSWER = "settings", "answer"
LARGEST_HEADER = 2**20
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
KNOWN = ("embeddings", "exclude", "exclude_offsets", "allow")


def read_search(content: bytes) -> dict[str, object]:
    """Return the members of a search, as JSON would have them, with tensors for embeddings and lists for ids."""
    header = _read_header(content)
    given = header.get("__metadata__", {})
    text = given.get(SETTINGS, "{}") if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise MalformedError(f"the metadata {SETTINGS!r} is not text; give a JSON object.")
    members = read_object(text.encode(errors="replace"))
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise MalformedError(f"the body is not safetensors ({error!s:.200}); send one file.") from None
    unknown = sorted(set(tensors) - set(KNOWN))
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r:.80} is not a tensor of a search; choose from: {', '.join(KNOWN)}.")
    for name in ("embeddings", "allow", "exclude"):
        if name in tensors and name in members:
            raise InvalidInputError(f"{name} is both a tensor and a setting; give one of them.")
    if "embeddings" in tensors:
        given_kind, shape = tensors["embeddings"].dtype, tuple(tensors["embeddings"].shape)
        if given_kind not in FLOATS or not shape:
            raise InvalidInputError(
                f"embeddings has shape {shape} and type {given_kind}; give rows of F32, F64, F16 or BF16 values."
            )
        members["embeddings"] = tensors["embeddings"]
    if "allow" in tensors:
        members["allow"] = _integers(tensors, "allow").tolist()
    if "exclude" in tensors:
        members["exclude"] = _lists(_integers(tensors, "exclude"), _integers(tensors, "exclude_offsets"))
    return members


def write_result(
    result: SearchResult, answer: dict[str, object], component_scores: Tensor | None, gate_weights: Tensor | None
) -> bytes:
    """Return a result as a safetensors file, with everything that is not a tensor as JSON in its metadata."""
    tensors = {
        "ids": result.ids.contiguous(),
        "scores": result.scores.contiguous(),
        "ceiling": result.ceiling.contiguous(),
        "num_scored": result.num_scored.contiguous(),
    }
    if component_scores is not None and gate_weights is not None:
        tensors |= {"component_scores": component_scores, "gate_weights": gate_weights}
    return save(tensors, metadata={ANSWER: write_json(answer).decode()})


def _read_header(content: bytes) -> dict[str, object]:
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(len(content) - 8, LARGEST_HEADER):
        raise MalformedError("the body is not safetensors: its header is truncated or too large; send one file.")
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError):
        raise MalformedError("the body is not safetensors: its header is not JSON; send one file.") from None
    if not isinstance(header, dict):
        raise MalformedError("the body is not safetensors: its header is not a JSON object; send one file.")
    return header


def _integers(tensors: dict[str, Tensor], name: str) -> Tensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise InvalidInputError(f"the tensor {name} is missing; give it beside exclude.")
    if tensor.dtype != torch.int64 or tensor.ndim != 1:
        shape = tuple(tensor.shape)
        raise InvalidInputError(f"{name} has shape {shape} and type {tensor.dtype}; give one row of int64 values.")
    return tensor


def _lists(ids: Tensor, offsets: Tensor) -> list[list[int]]:
    """Cut ids (n,) at offsets (B + 1,) into one list for each query."""
    is_within = bool(((offsets >= 0) & (offsets <= len(ids))).all())  # otherwise a difference may overflow
    steps = offsets[1:] - offsets[:-1]
    ends = offsets[[0, -1]].tolist() if len(offsets) else []
    if ends != [0, len(ids)] or not is_within or bool((steps < 0).any()):
        raise InvalidInputError(
            f"exclude_offsets must rise from 0 to {len(ids)}, the number of ids in exclude; give one value for each "
            "query, and the end."
        )
    return [part.tolist() for part in torch.split(ids, steps.tolist())]
