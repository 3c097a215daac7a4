"""The layers that sentence-transformers puts on a language model: pooling, dense layers and normalisation."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from railsearch.encoders.text.pooling import pool_mean, take_last
from railsearch.folders import check_shapes
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.inputs import is_finite
from railsearch.foundation.settings import LARGEST_SIZE, Config


class SentenceMode(StrEnum):
    """The poolings of sentence-transformers, under its names; the order is that of their outputs side by side."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT = "mean_sqrt_len_tokens"
    WEIGHTED = "weightedmean"
    LAST = "lasttoken"


class Activation(StrEnum):
    """Activations of a dense layer, by their names in torch.nn."""

    IDENTITY = "Identity"
    TANH = "Tanh"
    RELU = "ReLU"
    GELU = "GELU"
    SILU = "SiLU"
    SIGMOID = "Sigmoid"


class DenseConfig(Config):
    """A linear layer with an activation."""

    kind: Literal["dense"] = "dense"
    in_features: int = Field(ge=1, le=LARGEST_SIZE)
    out_features: int = Field(ge=1, le=LARGEST_SIZE)
    bias: bool = True
    activation: Activation = Activation.TANH
    use_residual: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight."""
        found: dict[str, tuple[int, ...]] = {"linear.weight": (self.out_features, self.in_features)}
        if self.bias:
            found["linear.bias"] = (self.out_features,)
        if self.use_residual and self.in_features != self.out_features:
            found["residual.weight"] = (self.out_features, self.in_features)
        return found


class LayerNormConfig(Config):
    """A layer normalisation with weights."""

    kind: Literal["layer_norm"] = "layer_norm"
    dimension: int = Field(ge=1, le=LARGEST_SIZE)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight."""
        return {"norm.weight": (self.dimension,), "norm.bias": (self.dimension,)}


class NormalizeConfig(Config):
    """Scaling to length 1."""

    kind: Literal["normalize"] = "normalize"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight: there are none."""
        return {}


LayerConfig = Annotated[DenseConfig | LayerNormConfig | NormalizeConfig, Field(discriminator="kind")]


class SentenceHeadConfig(Config):
    """The poolings whose outputs are put side by side, and the layers after them."""

    modes: tuple[SentenceMode, ...] = Field(min_length=1, max_length=len(SentenceMode))
    layers: tuple[LayerConfig, ...] = Field(default=(), max_length=100)

    @property
    def is_mean(self) -> bool:
        """Whether it is only the mean; similarities normalise texts themselves."""
        return self.modes == (SentenceMode.MEAN,) and not self.layers

    def out_dim(self, dim: int) -> int:
        """Return the size of an embedding, from that of an output of the model; refuse layers that do not fit."""
        size = dim * len(self.modes)
        for layer in self.layers:
            taken = getattr(layer, "in_features", getattr(layer, "dimension", size))
            if taken != size:
                raise ModelFolderError(
                    f"a {layer.kind} layer takes {taken} values but gets {size}; restore the folder from a copy."
                )
            size = layer.out_features if isinstance(layer, DenseConfig) else size
        return size

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight, by its name in `SentenceHead`."""
        return {
            f"layers.{number}.{name}": shape
            for number, layer in enumerate(self.layers)
            for name, shape in layer.shapes().items()
        }


class SentenceHead(nn.Module):
    """Pooling and layers: from the outputs at all positions to one embedding.

    Args:
        config: the poolings and the layers.
        dim: the size of an output of the model.
        weights: one tensor for each of `config.shapes()`, in fp32; other names and shapes are refused before memory is
            taken.
    """

    def __init__(self, config: SentenceHeadConfig, *, dim: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.config = config
        self.dim = config.out_dim(dim)
        with torch.device("meta"):
            self.layers = nn.ModuleList(_build(layer) for layer in config.layers)
        needed = {name: torch.empty(shape, device="meta") for name, shape in config.shapes().items()}
        check_shapes(needed, weights, Path("the head of the sentence encoder"))
        wrong = next((name for name, tensor in weights.items() if not is_finite(tensor)), None)
        if wrong is not None:
            raise ModelFolderError(f"the weight {wrong} of the sentence encoder has NaN or infinite values.")
        self.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
        for parameter in self.parameters():
            parameter.requires_grad_(True)

    def forward(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return one embedding (B, 1, D') for outputs (B, n, D)."""
        embeddings = torch.cat([pool_sentence(mode, outputs, is_real) for mode in self.config.modes], dim=-1)  # (B, D)
        for layer in self.layers:
            embeddings = layer(embeddings)  # (B, D')
        return embeddings[:, None]


def pool_sentence(mode: SentenceMode, outputs: Tensor, is_real: Tensor) -> Tensor:
    """Return one vector (B, D) for outputs (B, n, D), as sentence-transformers does."""
    if mode is SentenceMode.CLS:
        return outputs[:, 0]
    if mode is SentenceMode.MAX:
        return outputs.masked_fill(~is_real[..., None], float("-inf")).amax(dim=1)
    if mode is SentenceMode.LAST:
        return take_last(outputs, is_real)
    if mode is SentenceMode.WEIGHTED:
        places = torch.arange(1, outputs.shape[1] + 1, device=outputs.device)  # (n,)
        weights = (places * is_real).to(outputs.dtype)  # (B, n)
        return (weights[:, None] @ outputs.masked_fill(~is_real[..., None], 0.0))[:, 0] / weights.sum(1, keepdim=True)
    mean = pool_mean(outputs, is_real)[:, 0]  # (B, D)
    return mean if mode is SentenceMode.MEAN else mean * is_real.sum(dim=1, keepdim=True).sqrt()


class _Dense(nn.Module):
    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.in_features, config.out_features, bias=config.bias)
        self.activation: nn.Module = getattr(nn, config.activation.value)()
        self.use_residual = config.use_residual
        has_residual = config.use_residual and config.in_features != config.out_features
        self.residual = nn.Linear(config.in_features, config.out_features, bias=False) if has_residual else None

    def forward(self, values: Tensor) -> Tensor:
        found: Tensor = self.activation(self.linear(values))
        if not self.use_residual:
            return found
        return found + (values if self.residual is None else self.residual(values))


class _LayerNorm(nn.Module):
    def __init__(self, config: LayerNormConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dimension)

    def forward(self, values: Tensor) -> Tensor:
        found: Tensor = self.norm(values)
        return found


class _Normalize(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return F.normalize(values, dim=-1)


def _build(config: LayerConfig) -> nn.Module:
    if isinstance(config, DenseConfig):
        return _Dense(config)
    return _LayerNorm(config) if isinstance(config, LayerNormConfig) else _Normalize()


def read_head_config(config: object) -> SentenceHeadConfig:
    """Check the JSON values of a head."""
    if not isinstance(config, dict):
        raise InvalidInputError(f"the head of the encoder is {config!r:.80}; give a JSON object.")
    return SentenceHeadConfig(**config)
