"""Difficult worlds for searches, their true scores in fp64, and a check of what a result promises."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from railsearch import (
    Adaptive,
    BruteForce,
    DotProduct,
    Index,
    MixtureOfLogits,
    SearchResult,
    TwoPass,
)
from railsearch.kernels import compute_item_parts, compute_query_parts
from railsearch.similarity import ItemParts, QueryParts, Similarity

EXACT = (BruteForce(), TwoPass(), Adaptive())
TOLERANCE = 5e-3  # of scores that reach 50: fp32 against fp64
SHARP_TOLERANCE = 3e-2  # a sharp gate magnifies the rounding of its inputs; 0.009 was seen


def make_world(kind: str, num_items: int, seed: int) -> tuple[Similarity, Tensor, Tensor]:
    """Return a similarity and embeddings that are difficult to search: sharp gates, near ties, duplicates."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"query_dim": 6, "item_dim": 6, "component_dim": 5, "projection_dim": 8, "gate_dim": 8}
    items, queries = torch.randn(num_items, 6, generator=generator), torch.randn(3, 6, generator=generator)
    if kind == "dot":
        return DotProduct(dim=6), items, queries
    if kind == "single":
        mol = MixtureOfLogits(num_query_components=1, num_item_components=1, **sizes)
    else:
        mol = MixtureOfLogits(num_query_components=3, num_item_components=2, temperature=0.02, **sizes)
    mol.reset_parameters(generator)
    with torch.no_grad():
        for parameter in mol.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.4)
        if kind == "sharp":
            mol.gate.pair.output.weight.mul_(30.0)
    if kind == "near ties":
        items = items[:1] + 1e-6 * items
    if kind == "duplicates":
        items = items[torch.randint(max(1, num_items // 4), (num_items,), generator=generator)]
    return mol.eval(), items, queries


def tolerance_of(kind: str) -> float:
    """Return how far fp32 scores of such a world may be from fp64 ones."""
    return SHARP_TOLERANCE if kind == "sharp" else TOLERANCE


WORLDS = ["random", "sharp", "near ties", "duplicates", "single", "dot"]


@torch.no_grad()
def fp64_scores(index: Index, queries: Tensor, items: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    similarity = copy.deepcopy(index.similarity)
    assert isinstance(similarity, nn.Module)
    like = next(iter(similarity.parameters()), torch.empty(0))
    # As the index computes them: another last bit may round to another number of half precision.
    item_parts = compute_item_parts(similarity, items.to(like)).to(dtype)
    query_parts = compute_query_parts(similarity, queries.to(like))

    def double(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.double()

    return similarity.double().score(
        QueryParts(double(query_parts.components), double(query_parts.gate)),
        ItemParts(double(item_parts.components), double(item_parts.gate)),
    )


def check_result(
    result: SearchResult, truth: Tensor, ids: Tensor, k: int, visible: list[set[int]], tolerance: float = TOLERANCE
) -> None:
    """Check everything that a certificate promises against the fp64 scores of the items visible to each query."""
    row_of = {int(item): row for row, item in enumerate(ids)}
    for query in range(len(truth)):
        returned = [int(item) for item in result.ids[query] if item != -1]
        allowed = visible[query]
        assert len(returned) == len(set(returned)) == min(k, len(allowed))
        assert set(returned) <= allowed
        own = {item: float(truth[query, row_of[item]]) for item in allowed}
        for item, score in zip(returned, result.scores[query].tolist(), strict=False):
            assert abs(own[item] - score) <= tolerance
        ranked = sorted(own.values(), reverse=True)[:k]
        if len(ranked) < k:  # all that there is was returned
            continue
        true_kth, found_kth = ranked[-1], float(result.scores[query, -1])
        assert true_kth - found_kth <= float(result.gap[query]) + tolerance
        if bool(result.is_exact[query]):
            missed = [score for item, score in own.items() if item not in returned]
            assert max(missed, default=-np.inf) <= found_kth + tolerance
        for item in returned[: int(result.num_certified[query])]:
            assert own[item] >= true_kth - tolerance
