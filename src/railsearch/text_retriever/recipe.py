"""The recipe of a text retriever: data, encoder, similarity and training, readable as a TOML file."""

from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from railsearch.data import PassageLayout, QuestionPassages, add_generated, is_beir, read_passages, split_questions
from railsearch.encoders import Pooling, TextEncoder, TextEncoderConfig
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import LARGEST_SIZE, Config
from railsearch.models import TextModel
from railsearch.similarity import (
    ConfigValue,
    CosineConfig,
    GateConfig,
    GateInput,
    LateInteraction,
    MixtureOfLogits,
    Projection,
    RegisteredConfig,
    Similarity,
    similarity_from,
    similarity_tag,
)
from railsearch.similarity.gate_start import start_at_best, start_even
from railsearch.similarity.registry import build_similarity
from railsearch.training import TextTrainingConfig


class TextDataConfig(Config):
    """The questions and passages."""

    path: str | None = Field(default=None, description="a file or folder in the layout")
    layout: PassageLayout = Field(
        default=PassageLayout.PAIRS, description="the format of the data; a folder of BEIR is known by its files"
    )
    generated: str | None = Field(default=None, description="generated questions to train on as well, as JSON lines")
    validation_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of the training questions that pick the epoch, if the data hold out none for that",
    )
    test_share: float = Field(default=0.1, ge=0, lt=1, description="the same share, for the test")
    split_seed: int = Field(
        default=0,
        ge=0,
        le=LARGEST_SEED,
        description="seed of the choice of held-out questions; training has its own seed",
    )


class TextMixtureConfig(GateConfig):
    """Mixture of Logits over texts; by default its gate uses only the scores of component pairs.

    If the encoder returns one embedding for each text, the mixture starts as the cosine of these embeddings and learns
    its own components from them (`MixtureOfLogits.around`). If the encoder returns several components, the mixture
    compares these.

    >>> TextMixtureConfig().temperature
    0.05
    """

    num_query_components: int = Field(
        default=4, ge=1, le=LARGEST_SIZE, description="Pq, if the encoder returns one embedding for each text"
    )
    num_item_components: int = Field(
        default=4, ge=1, le=LARGEST_SIZE, description="Px, likewise; passages that are cut into windows bring their own"
    )
    window_sharpness: float = Field(
        default=0.5,
        ge=0,
        le=100,
        description="how much the best window of a passage counts before training: the gate starts as a softmax over "
        "this times the scores of the windows; 0 makes all windows count the same",
    )

    gate_inputs: tuple[GateInput, ...] = Field(
        default=(GateInput.PAIR,), description="inputs of the gate, any of query, item, pair; none makes it uniform"
    )


TextSimilarityConfig: TypeAlias = Annotated[
    Annotated[TextMixtureConfig, Tag("mixture_of_logits")]
    | Annotated[CosineConfig, Tag("cosine")]
    | Annotated[RegisteredConfig, Tag("registered")],
    Discriminator(similarity_tag),
]


class TextRecipe(Config):
    """Everything that a text retriever is built from.

    >>> recipe = TextRecipe(encoder=TextEncoderConfig(base="models/minilm"), training={"epochs": 1})
    >>> recipe.training.schedule.value
    'linear'
    """

    data: TextDataConfig = TextDataConfig()
    encoder: TextEncoderConfig
    similarity: TextSimilarityConfig = TextMixtureConfig()
    training: TextTrainingConfig = TextTrainingConfig()

    @model_validator(mode="before")
    @classmethod
    def _choose_similarity(cls, given: object) -> object:
        """Compare components that are pooled late by late interaction, unless the recipe states how."""
        if not isinstance(given, dict) or "similarity" in given:
            return given
        encoder = given.get("encoder")
        if isinstance(encoder, dict):
            try:
                encoder = TextEncoderConfig(**encoder)
            except ValueError:
                return given  # the check of the section says what is wrong
        is_late = isinstance(encoder, TextEncoderConfig) and encoder.pools_late
        return {**given, "similarity": {"kind": LateInteraction.kind}} if is_late else given

    @property
    def derives_components(self) -> bool:
        """Whether the similarity is a mixture that makes its own components from one embedding for each text."""
        counts = (self.encoder.num_query_components, self.encoder.num_item_components)
        return counts == (1, 1) and isinstance(self.similarity, TextMixtureConfig)

    @property
    def num_components(self) -> tuple[int, int]:
        """The components of a query and of a passage that are compared."""
        counts = self.similarity if self.derives_components else self.encoder
        assert isinstance(counts, TextMixtureConfig | TextEncoderConfig)
        own = self.similarity if self.mixes_windows else counts
        assert isinstance(own, TextMixtureConfig | TextEncoderConfig)
        return own.num_query_components, counts.num_item_components

    @property
    def mixes_windows(self) -> bool:
        """Whether the similarity is a mixture over the windows of a passage, with query components of its own."""
        is_several = self.encoder.num_item_components > 1
        has_windows = self.encoder.pooling is Pooling.WINDOWS and not self.encoder.pools_late
        return has_windows and is_several and isinstance(self.similarity, TextMixtureConfig)

    @model_validator(mode="after")
    def _check_components(self) -> Self:
        counts = (self.encoder.num_query_components, self.encoder.num_item_components)
        if isinstance(self.similarity, CosineConfig) and counts != (1, 1):
            raise InvalidInputError(
                f"a cosine compares one component with one but the encoder has {counts[0]} and {counts[1]}; set "
                "num_query_components and num_item_components to 1"
            )
        if isinstance(self.similarity, CosineConfig) and self.training.decorrelation_weight:
            raise InvalidInputError(
                f"decorrelation_weight is {self.training.decorrelation_weight:g} but a cosine has one component for "
                "each text, and nothing to keep apart; set it to 0, or use a mixture"
            )
        return self


def read_training_data(recipe: TextRecipe, path: str | Path | None = None) -> QuestionPassages:
    """Read the data that a recipe names, or data at another path, with generated questions to train on.

    If the data hold out no questions, questions are held out as the recipe states.
    """
    found = read_split_data(recipe, path)
    return found if recipe.data.generated is None else add_generated(found, recipe.data.generated)


def read_split_data(recipe: TextRecipe, path: str | Path | None = None) -> QuestionPassages:
    """Read the same data without generated questions."""
    config = recipe.data
    place = config.path if path is None else path
    if place is None:
        raise InvalidInputError("the recipe names no data; set data.path, or pass path=PATH.")
    found = read_passages(place, PassageLayout.BEIR if is_beir(place) else config.layout)
    validation_share = config.validation_share if found.validation is None else 0.0
    test_share = config.test_share if found.test is None else 0.0
    if len(found.train) and (validation_share or test_share):
        found = split_questions(found, validation_share=validation_share, test_share=test_share, seed=config.split_seed)
    return found


def build_text_model(recipe: TextRecipe, *, allow_download: bool = False) -> TextModel:
    """Build the model that a recipe describes: pretrained weights, and the initial values of new ones."""
    encoder = TextEncoder.from_pretrained(recipe.encoder, allow_download=allow_download)
    return TextModel(encoder=encoder, similarity=build_text_similarity(recipe, dim=encoder.dim))


def build_text_similarity(recipe: TextRecipe, *, dim: int) -> Similarity:
    """Build the similarity that a recipe describes, for embeddings or components of `dim` values."""
    config, encoder = recipe.similarity, recipe.encoder
    given: dict[str, ConfigValue] = {
        "dim": dim,
        "component_dim": dim,
        "num_query_components": encoder.num_query_components,
        "num_item_components": encoder.num_item_components,
        "query_projection": Projection.READY.value,
        "item_projection": Projection.READY.value,
        "seed": (encoder.seed + 1) % LARGEST_SEED,
    }
    if not isinstance(config, TextMixtureConfig):
        return similarity_from(config, given)
    settings = config.model_dump(exclude={"kind", "num_query_components", "num_item_components", "window_sharpness"})
    if recipe.derives_components:
        own: dict[str, ConfigValue] = {
            "num_query_components": config.num_query_components,
            "num_item_components": config.num_item_components,
            "query_dim": dim,
            "item_dim": dim,
            "query_projection": Projection.RESIDUAL.value,
            "item_projection": Projection.RESIDUAL.value,
        }
        return build_similarity(config.kind, {**settings, **own}, given)
    if recipe.mixes_windows:
        # Query components start as the embedding of the query, so each pair starts as the cosine of a window.
        settings |= {
            "num_query_components": config.num_query_components,
            "query_dim": dim,
            "query_projection": Projection.RESIDUAL.value,
        }
    similarity = build_similarity(config.kind, settings, given)
    assert isinstance(similarity, MixtureOfLogits)
    if recipe.mixes_windows:
        start_at_best(similarity, sharpness=config.window_sharpness)
    else:
        start_even(similarity)
    return similarity
