"""What recipes say of a similarity."""

from typing import Literal

from pydantic import Field

from railsearch.foundation.settings import Config
from railsearch.similarity.gate import GateInput
from railsearch.similarity.projection import Projection


class CosineConfig(Config):
    """The baseline: a cosine of one embedding each.

    >>> CosineConfig().temperature
    0.05
    """

    kind: Literal["cosine"] = "cosine"
    temperature: float = Field(default=0.05, gt=0)


class MixtureConfig(Config):
    """Mixture of Logits; see `railsearch.MixtureOfLogits`.

    >>> MixtureConfig(user_table_size=6040).user_dropout
    0.5
    """

    kind: Literal["mixture_of_logits"] = "mixture_of_logits"
    num_query_components: int = Field(default=8, ge=1)
    num_item_components: int = Field(default=4, ge=1)
    component_dim: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.05, gt=0)
    query_projection: Projection = Projection.SWIGLU
    projection_dim: int = Field(default=512, ge=1)
    item_dropout: float = Field(default=0.1, ge=0, lt=1)
    gate_inputs: tuple[GateInput, ...] = tuple(GateInput)
    gate_dim: int = Field(default=128, ge=1)
    gate_dropout: float = Field(default=0.2, ge=0, lt=1)
    user_table_size: int | None = Field(default=None, ge=1)
    user_dropout: float = Field(default=0.5, ge=0, lt=1)
