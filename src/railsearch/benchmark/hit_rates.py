"""The quality of a search: hit rates relative to brute force (the paper's Table 3)."""

from torch import Tensor

DEPTHS = (1, 5, 10, 50, 100)
"""The K of HR@K."""
TIE = 1e-5
"""Relative distance from the K-th score within which an item ties with it."""


def relative_hit_rates(scores: Tensor, true_scores: Tensor) -> dict[int, float]:
    """Return the share of the true best K items among the best K found, for each depth K of the paper up to k.

    An item counts by its score, so that an item that ties with the true K-th is not a miss.

    Args:
        scores: (B, k) scores of the items found, best first.
        true_scores: (B, k) scores of the true best items, best first.

    >>> import torch
    >>> relative_hit_rates(torch.tensor([[9.0, 7.0, 6.0, 5.0, 4.0]]), torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0]]))
    {1: 1.0, 5: 0.8}
    """
    rates = {}
    for depth in DEPTHS:
        if depth <= true_scores.shape[1]:
            kth = true_scores[:, depth - 1 : depth]  # (B, 1)
            is_hit = scores[:, :depth] >= kth - TIE * kth.abs().clamp_min(1.0)  # (B, depth)
            rates[depth] = float(is_hit.double().mean())
    return rates
