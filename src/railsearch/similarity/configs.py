"""Settings of a similarity, as recipes state them: one class for each built-in kind, and one for registered kinds."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.settings import LARGEST_SIZE, Config
from railsearch.similarity.contract import ConfigValue, Similarity
from railsearch.similarity.gate import GateActivation, GateInput
from railsearch.similarity.projection import Projection
from railsearch.similarity.registry import (
    RECIPE_NAMES,
    build_similarity,
    is_registered,
    registered_kinds,
    required_settings,
    settings_of,
)

REGISTERED = "registered"
GIVEN = frozenset(
    {
        "dim", "query_dim", "item_dim", "component_dim", "num_query_components", "num_item_components",
        "query_projection", "item_projection", "seed",
    }
)  # fmt: skip
"""Arguments that a recipe may fill in from its encoder."""


class CosineConfig(Config):
    """The baseline: a cosine of one embedding each, `DotProduct(cosine=True)` at the temperature of the mixture.

    >>> CosineConfig().temperature
    0.05
    """

    kind: Literal["cosine"] = "cosine"
    temperature: float = Field(default=0.05, gt=0, description="divides the cosine")
    learns_temperature: bool = Field(default=False, description="let training change the temperature")
    epsilon: float = Field(default=1e-6, gt=0, description="embeddings shorter than this are not scaled up to length 1")


class GateConfig(Config):
    """Settings of a Mixture of Logits that do not depend on where its components come from."""

    kind: Literal["mixture_of_logits"] = "mixture_of_logits"
    temperature: float = Field(default=0.05, gt=0, description="divides every dot product")
    learns_temperature: bool = Field(default=False, description="let training change the temperature")
    gate_inputs: tuple[GateInput, ...] = Field(
        default=tuple(GateInput), description="inputs of the gate, any of query, item, pair; none makes it uniform"
    )
    gate_dim: int = Field(default=128, ge=1, le=LARGEST_SIZE, description="hidden size of the gate's networks")
    gate_activation: GateActivation | None = Field(
        default=None, description="silu or identity before the softmax; by default identity if the only input is pair"
    )
    gate_dropout: float = Field(default=0.2, ge=0, lt=1, description="share of gate weights dropped while training")
    component_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of query components dropped while training, each as a whole"
    )
    normalizes: bool = Field(default=True, description="scale every component to length 1")
    epsilon: float = Field(default=1e-6, gt=0, description="components shorter than this are not scaled up to length 1")


class Start(StrEnum):
    """The similarity that a mixture is before training."""

    IDENTITY = "identity"
    """The cosine of the embeddings: every component starts as the embedding, see `MixtureOfLogits.around`."""
    RANDOM = "random"
    """Random components, as in the paper."""


class MixtureConfig(GateConfig):
    """Mixture of Logits over embeddings; see `railsearch.MixtureOfLogits`.

    >>> MixtureConfig(user_table_size=6040).user_dropout
    0.5
    """

    start: Start | None = Field(
        default=None,
        description="identity: start as the cosine of the embeddings; random: with random components. By default "
        "identity, unless component_dim or a projection is set",
    )
    num_query_components: int = Field(default=8, ge=1, le=LARGEST_SIZE, description="Pq, the user component included")
    num_item_components: int = Field(default=4, ge=1, le=LARGEST_SIZE, description="Px")
    component_dim: int | None = Field(
        default=None,
        ge=1,
        le=LARGEST_SIZE,
        description="d, the size of one component; by default 32, or the encoder's dim if the start is identity",
    )
    query_projection: Projection | None = Field(
        default=None, description="from a query to its components; by default swiglu, or residual for identity"
    )
    item_projection: Projection | None = Field(
        default=None, description="from an item to its components; by default linear, or residual for identity"
    )
    projection_dim: int = Field(default=512, ge=1, le=LARGEST_SIZE, description="hidden size of swiglu and geglu")
    item_dropout: float = Field(
        default=0.1, ge=0, lt=1, description="share of item embedding values dropped while training"
    )
    user_table_size: int | None = Field(default=None, ge=1, description="rows of a table of user components")
    user_table_hashing: bool = Field(
        default=False,
        description="let users share rows of the table, which is needed if there are more users than rows",
    )
    user_dropout: float = Field(
        default=0.5, ge=0, lt=1, description="share of user component values dropped while training"
    )

    @property
    def starts_as_cosine(self) -> bool:
        """Whether the mixture is the cosine of the embeddings before training."""
        if self.start is None:
            return self.component_dim is None and self.query_projection is None and self.item_projection is None
        return self.start is Start.IDENTITY

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        for name in ("query_projection", "item_projection"):
            value = getattr(self, name)
            if self.starts_as_cosine and value not in {None, Projection.RESIDUAL}:
                raise InvalidInputError(
                    f"start is 'identity' but {name} is {value.value!r}; omit {name}, or set start to 'random'"
                )
        return self

    def arguments(self, *, dim: int) -> dict[str, ConfigValue]:
        """Return the keyword arguments of `MixtureOfLogits` for embeddings of `dim` values."""
        settings = self.model_dump(exclude={"kind", "start", "user_table_hashing"})
        if self.starts_as_cosine:
            by_start = {"component_dim": dim, "query_projection": "residual", "item_projection": "residual"}
        else:
            by_start = {"component_dim": 32, "query_projection": "swiglu", "item_projection": "linear"}
        return {**settings, **{name: value for name, value in by_start.items() if settings[name] is None}}


class RegisteredConfig(Config):
    """A similarity that was registered with `register_similarity`, and the keyword arguments of its constructor.

    Arguments about sizes (`dim`, `query_dim`, `item_dim`, `component_dim`, `num_query_components`,
    `num_item_components`) and `seed` are filled in from the recipe if the settings omit them.

    >>> RegisteredConfig(kind="dot_product", temperature=0.1).settings
    {'temperature': 0.1}
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    __pydantic_extra__: dict[str, ConfigValue]

    kind: str

    @property
    def settings(self) -> dict[str, ConfigValue]:
        """The keyword arguments that are set."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if not is_registered(self.kind):
            choices = ", ".join(sorted({*registered_kinds(), *RECIPE_NAMES}))
            raise InvalidInputError(f"kind is {self.kind!r}; choose from: {choices}, or register it first")
        known = settings_of(self.kind)
        for name in self.settings:
            if name not in known:
                raise InvalidInputError(f"{name} is not a setting; choose from: {', '.join(sorted(known))}")
        for name in required_settings(self.kind):
            if name not in self.settings and name not in GIVEN:
                raise InvalidInputError(f"{name} is missing")
        return self


def similarity_tag(value: object) -> str | None:
    """Return which of the config classes a section of a recipe belongs to; None if it states no kind."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    if kind is None or not isinstance(kind, str):
        return None
    return kind if kind in {"mixture_of_logits", *RECIPE_NAMES} else REGISTERED


SimilarityConfig: TypeAlias = Annotated[
    Annotated[MixtureConfig, Tag("mixture_of_logits")]
    | Annotated[CosineConfig, Tag("cosine")]
    | Annotated[RegisteredConfig, Tag(REGISTERED)],
    Discriminator(similarity_tag),
]


def similarity_from(
    config: GateConfig | CosineConfig | RegisteredConfig, given: Mapping[str, ConfigValue]
) -> Similarity:
    """Build the similarity that a recipe describes.

    Args:
        config: its section of the recipe.
        given: values that follow from the rest of the recipe, such as sizes; used for arguments that the constructor
            has and the section does not set.
    """
    if isinstance(config, RegisteredConfig):
        return build_similarity(config.kind, config.settings, given)
    if isinstance(config, MixtureConfig):
        dim = given["dim"]
        assert isinstance(dim, int)
        return build_similarity(config.kind, config.arguments(dim=dim), given)
    settings = config.model_dump(exclude={"kind"})
    if isinstance(config, CosineConfig):
        return build_similarity("dot_product", {**settings, "cosine": True}, given)
    return build_similarity(config.kind, settings, given)
