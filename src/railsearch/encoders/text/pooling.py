"""Pooling of the outputs at all positions into components: aggregation tokens, parameterised (A.2), or the mean."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from railsearch.encoders.text.settings import TokenPlace

HIDDEN_DIM = 256
FIRST_SHARPNESS = 8.0
"""Rate at which initial weights fall with the squared distance, in text lengths, to a component's part of the text."""


class ParameterisedPooling(nn.Module):
    """Weights of the positions for each component, computed from the output that summarises the text.

    Args:
        dim: D, the size of outputs.
        num_components: P.
        max_length: most positions of a text.
        place: the output that summarises the text: the first, or the last in a causal model, whose first position
            does not see the rest.
        generator: source of the initial weights. The first component starts as the mean; every other one starts with
            more weight on its own part of the text, because components that start equal hardly become different.
    """

    def __init__(
        self, *, dim: int, num_components: int, max_length: int, place: TokenPlace, generator: Generator
    ) -> None:
        super().__init__()
        self.num_components = num_components
        self.max_length = max_length
        self.place = place
        self.norm = nn.LayerNorm(dim)
        self.hidden = nn.Linear(dim, HIDDEN_DIM)
        self.positions = nn.Linear(HIDDEN_DIM, num_components * max_length)
        nn.init.xavier_uniform_(self.hidden.weight, generator=generator)
        nn.init.zeros_(self.hidden.bias)
        nn.init.normal_(self.positions.weight, std=0.02, generator=generator)
        with torch.no_grad():
            self.positions.bias.copy_(_soft_parts(num_components, max_length).flatten())

    def forward(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return components (B, P, D) of outputs (B, n, D)."""
        return self.weights(outputs, is_real) @ outputs.masked_fill(~is_real[..., None], 0.0)

    def weights(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return the weight of each position for each component (B, P, n); they sum to 1, and padding has 0."""
        summary = self.norm(take_last(outputs, is_real) if self.place is TokenPlace.END else outputs[:, 0])  # (B, D)
        logits = self.positions(F.silu(self.hidden(summary)))  # (B, P * N)
        logits = logits.view(-1, self.num_components, self.max_length)[..., : outputs.shape[1]]  # (B, P, n)
        return torch.softmax(logits.masked_fill(~is_real[:, None], float("-inf")), dim=-1)


def _soft_parts(num_components: int, max_length: int) -> Tensor:
    """Return logits (P, N) with which component p > 0 favours the p-th of P - 1 equal parts of the longest text."""
    num_parts = num_components - 1
    centres = (torch.arange(num_parts) + 0.5) / max(1, num_parts)  # (P - 1,)
    positions = (torch.arange(max_length) + 0.5) / max_length  # (N,)
    parts = -FIRST_SHARPNESS * (positions - centres[:, None]).square()  # (P - 1, N)
    return torch.cat([torch.zeros(1, max_length), parts])  # (P, N)


def pool_mean(outputs: Tensor, is_real: Tensor) -> Tensor:
    """Return the mean output (B, 1, D) over all positions except padding."""
    summed = outputs.masked_fill(~is_real[..., None], 0.0).sum(dim=1, keepdim=True)  # (B, 1, D)
    return summed / is_real.sum(dim=1)[:, None, None]


def pool_tokens(outputs: Tensor, is_real: Tensor, *, num_tokens: int, place: TokenPlace) -> Tensor:
    """Return the outputs of the aggregation tokens (B, P, D), at the front or the end of each text."""
    if place is TokenPlace.FRONT:
        return outputs[:, :num_tokens]
    starts = is_real.sum(dim=1, keepdim=True) - num_tokens  # (B, 1)
    positions = starts + torch.arange(num_tokens, device=outputs.device)  # (B, P)
    return outputs.gather(1, positions[..., None].expand(-1, -1, outputs.shape[2]))


def take_last(outputs: Tensor, is_real: Tensor) -> Tensor:
    """Return the output of each text's last token (B, D)."""
    return pool_tokens(outputs, is_real, num_tokens=1, place=TokenPlace.END)[:, 0]
