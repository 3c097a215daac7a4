"""The content of an index folder, read naively: safetensors and a triple loop in fp64, none of the code under test."""

import json
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from railsearch import load_similarity


def read_reference(folder: Path, version: int, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids (M,) of live items of a version, and their fp64 scores (B, M) for queries."""
    body = json.loads((folder / f"manifests/{version:08d}.json").read_text().partition("\n")[2])
    similarity = load_similarity(folder / "similarity").double()  # type: ignore[attr-defined]
    query_parts = similarity.query_parts(queries.double())
    ids, scores = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(len(queries), 0, dtype=torch.float64)]
    for segment in body["segments"]:
        tensors = safetensors.torch.load_file(folder / f"segments/{segment['name']}.safetensors")
        is_live = torch.ones(len(tensors["ids"]), dtype=torch.bool)
        if segment["tombstones"] is not None:
            is_live[safetensors.torch.load_file(folder / segment["tombstones"])["rows"]] = False
        gate = tensors.get("gate")
        parts = type(similarity.item_parts(queries[:1].double()))(
            tensors["components"].double(), None if gate is None else gate.double()
        )
        ids.append(tensors["ids"][is_live])
        scores.append(similarity.score(query_parts, parts).detach()[:, is_live])
    return torch.cat(ids), torch.cat(scores, dim=1)
