"""From one embedding to several components: Linear, Residual, SwiGLU or GeGLU."""

from collections import OrderedDict
from enum import StrEnum

import torch
from torch import Generator, Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count


class Projection(StrEnum):
    """The network that computes components from the input of a side."""

    LINEAR = "linear"
    RESIDUAL = "residual"
    """The embedding plus a linear function of it that starts at zero: every component begins as the embedding."""
    SWIGLU = "swiglu"
    GEGLU = "geglu"
    READY = "ready"
    """No network: the input already holds the components."""


class GatedLinearUnit(nn.Module):
    """act(x A) * (x B): the first half of the hidden values goes through the activation."""

    def __init__(self, *, input_dim: int, hidden_dim: int, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.hidden = nn.Linear(input_dim, 2 * hidden_dim)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (..., input_dim) to (..., hidden_dim)."""
        activated, linear = self.hidden(inputs).chunk(2, dim=-1)  # (..., H) each
        unit: Tensor = self.activation(activated) * linear  # (..., H)
        return unit


class Residual(nn.Module):
    """x + A_i x + b_i for each component i. A and b start at zero, and weight decay pulls them back to it."""

    def __init__(self, *, dim: int, num_components: int) -> None:
        super().__init__()
        self.num_components = num_components
        self.change = nn.Linear(dim, num_components * dim)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (B, D) to (B, components * D)."""
        changed: Tensor = inputs.repeat(1, self.num_components) + self.change(inputs)  # (B, components * D)
        return changed


class ComponentProjections(nn.Module):
    """x_i + A_i x_i for component i of ready ones. A starts at zero, and weight decay pulls it back to it.

    There is no bias, so a component of zeros stays zero.
    """

    def __init__(self, *, dim: int, num_components: int) -> None:
        super().__init__()
        self.change = nn.Parameter(torch.zeros(num_components, dim, dim))  # (P, d, d)

    def forward(self, components: Tensor) -> Tensor:
        """Map components (B, P, d) to components of the same shape."""
        return components + torch.einsum("bpd,ped->bpe", components, self.change)  # (B, P, d)


def build_projection(
    projection: Projection, *, input_dim: int, hidden_dim: int, output_dim: int, dropout: float
) -> nn.Sequential:
    """Build the network that maps (..., input_dim) to (..., output_dim); empty if the input is ready."""
    if projection is Projection.READY:
        return nn.Sequential()
    layers: OrderedDict[str, nn.Module] = OrderedDict(dropout=nn.Dropout(dropout))
    if projection is Projection.RESIDUAL:
        layers["output"] = Residual(dim=input_dim, num_components=output_dim // input_dim)
        return nn.Sequential(layers)
    if projection is not Projection.LINEAR:
        activation = nn.SiLU() if projection is Projection.SWIGLU else nn.GELU()
        layers["unit"] = GatedLinearUnit(input_dim=input_dim, hidden_dim=hidden_dim, activation=activation)
        input_dim = hidden_dim
    layers["output"] = nn.Linear(input_dim, output_dim)
    return nn.Sequential(layers)


def initialize(network: nn.Module, generator: Generator | None) -> None:
    """Initialize all layers: xavier for Linear, normal(0, 0.02) inside a gated unit, zero for Residual."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in network.modules():
        if isinstance(module, GatedLinearUnit):
            nn.init.normal_(module.hidden.weight, std=0.02, generator=generator)
        elif isinstance(module, Residual):
            nn.init.zeros_(module.change.weight)


def drop_components(components: Tensor, rate: float) -> Tensor:
    """Drop a share of the components (B, Pq, d) of each query at random, and scale up the rest.

    A dropped component is zero, so its scores are zero. If all pairs have the same weight, the expected score stays the
    same. A query whose components would all be dropped keeps them all.
    """
    if not rate:
        return components
    is_kept = torch.rand(components.shape[:2], device=components.device) >= rate  # (B, Pq)
    is_kept |= ~is_kept.any(dim=1, keepdim=True)
    share = is_kept.sum(dim=1, keepdim=True) / components.shape[1]  # (B, 1)
    return components * (is_kept / share).to(components)[..., None]  # (B, Pq, d)


def input_shape(side: str, projection: Projection, dim: int | None, ready_shape: tuple[int, int]) -> tuple[int, ...]:
    """Return the shape of one row of a side's input: (D,) for an embedding, (components, d) if they are ready."""
    if projection is Projection.READY:
        return ready_shape
    count = check_count(dim, name=f"{side}_dim")
    if projection is Projection.RESIDUAL and count != ready_shape[1]:
        raise InvalidInputError(
            f"{side}_projection is 'residual' but {side}_dim is {count} and component_dim is {ready_shape[1]}; a "
            "component that starts as the embedding has its size: use one number for both."
        )
    return (count,)
