"""Scores of training, which have a gradient: the fastest way for a similarity and a device."""

import torch
from torch import Tensor

from railsearch.kernels import native
from railsearch.kernels.choose import uses_native
from railsearch.kernels.fused_mixture import fused_mixture
from railsearch.similarity import DotProduct, ItemParts, MixtureOfLogits, QueryParts, Similarity
from railsearch.similarity.parts import all_products, by_pair, own_products


def training_scores(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
    """Return the scores (B, N) of every query with every item, or of each query with its own candidates (B, C, ...).

    They are those of `similarity.score` and `similarity.score_candidates`, and so is their gradient. The mixture of a
    MixtureOfLogits in training mode, which takes most of the time, is computed by one function with its gradient: in
    C++ on a CPU, if the native kernels were compiled, and with torch otherwise. Its dropout draws other numbers.
    """
    has_own_candidates = item_parts.components.ndim == 4
    if not _has_quick_mixture(similarity):
        if has_own_candidates:
            return similarity.score_candidates(query_parts, item_parts)  # (B, C)
        return similarity.score(query_parts, item_parts)  # (B, N)
    assert isinstance(similarity, MixtureOfLogits)
    similarity.gate.check_sides(query_parts.gate, item_parts.gate)
    multiply = own_products if has_own_candidates else all_products
    products = multiply(query_parts.components / similarity.temperature, item_parts.components)  # (B, Pq, N, Px)
    if uses_native(products.device) and native.can_train(similarity.gate, products, query_parts.gate, item_parts.gate):
        return native.native_mixture(similarity.gate, products, query_parts.gate, item_parts.gate)  # (B, N)
    by_query = None if query_parts.gate is None else query_parts.gate[:, None]  # (B, 1, P)
    return fused_mixture(similarity.gate, by_pair(products), by_query, item_parts.gate)  # (B, N)


def can_share_softmax(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> bool:
    """Return whether `shared_softmax` computes the loss of these parts: a DotProduct in fp32 on a CPU."""
    tensors = query_parts.components, item_parts.components
    return (
        type(similarity) is DotProduct
        and uses_native(query_parts.components.device)
        and native.can_share_softmax(*tensors)
    )


def values_per_training_pair(similarity: Similarity, device: torch.device) -> int:
    """Return how many values `training_scores` keeps for each query-item pair; C++ keeps no layer of the gate."""
    if _has_quick_mixture(similarity) and uses_native(device):
        assert isinstance(similarity, MixtureOfLogits)
        if native.can_train(similarity.gate):
            return similarity.num_query_components * similarity.num_item_components
    return similarity.values_per_pair


def _has_quick_mixture(similarity: Similarity) -> bool:
    """Return whether gradients are needed, of a gate with a pair network, and nothing changes its formula."""
    return (
        type(similarity) is MixtureOfLogits
        and similarity.training
        and torch.is_grad_enabled()
        and similarity.gate.pair is not None
        and native.has_plain_gate(similarity)
    )
