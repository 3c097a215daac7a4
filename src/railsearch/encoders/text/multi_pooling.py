"""Multi pooling: several components for each text, which begin as the mean output and learn to see different tokens."""

import torch
from torch import Generator, Tensor, nn

from railsearch.encoders.text.pooling import pool_mean

FIRST_SHARPNESS = 2.0
"""Length of the initial attention queries. A pool of 256 tokens then begins with most weight on about 5 of them."""


class MultiPooling(nn.Module):
    """Component p of a text is m + A (pool_p - m): the mean output m, moved towards an attention pool of its own.

    Pool p is the mean of the outputs weighted by softmax(<k_p, LayerNorm(output)>). The attention queries k_p start
    orthogonal, so that the pools see different tokens. A starts as `spread` times the identity: with 0, every component
    begins as the mean, and a mixture of their scores as the cosine of the means. Weight decay pulls A towards 0.

    Args:
        dim: D, the size of outputs.
        num_components: P.
        spread: how far components begin from the mean.
        generator: source of the attention queries.
    """

    def __init__(self, *, dim: int, num_components: int, spread: float, generator: Generator) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.queries = nn.Parameter(torch.empty(num_components, dim))  # (P, D)
        self.change = first_change(dim, spread)
        nn.init.orthogonal_(self.queries, gain=FIRST_SHARPNESS, generator=generator)

    def forward(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return components (B, P, D) of outputs (B, n, D)."""
        return move_from_mean(self.change, self.weights(outputs, is_real), outputs, is_real)  # (B, P, D)

    def weights(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return the weight of each position for each component (B, P, n); they sum to 1, and padding has 0."""
        logits = self.queries @ self.norm(outputs).mT  # (B, P, n)
        return torch.softmax(logits.masked_fill(~is_real[:, None], float("-inf")), dim=-1)


def first_change(dim: int, spread: float) -> nn.Linear:
    """Return A at its start, `spread` times the identity."""
    change = nn.Linear(dim, dim, bias=False)
    with torch.no_grad():
        change.weight.copy_(spread * torch.eye(dim))
    return change


def move_from_mean(change: nn.Module, weights: Tensor, outputs: Tensor, is_real: Tensor) -> Tensor:
    """Return m + A (pool_p - m), (B, P, D), for the mean m of outputs (B, n, D) and pools with weights (B, P, n)."""
    mean = pool_mean(outputs, is_real)  # (B, 1, D)
    pools = weights @ outputs.masked_fill(~is_real[..., None], 0.0)  # (B, P, D)
    moved: Tensor = mean + change(pools - mean)  # (B, P, D)
    return moved
