"""A recipe says all that a text retriever is made of: data, encoder, similarity, training. A readable TOML file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from railsearch.data import PassageLayout, QuestionPassages, add_generated, read_passages, split_questions
from railsearch.encoders import TextEncoder, TextSettings
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import Config, read_config
from railsearch.models import TextModel
from railsearch.similarity import CosineConfig, DotProduct, GateInput, MixtureOfLogits, Projection, Similarity
from railsearch.training import TextTrainingConfig


class TextDataConfig(Config):
    """Which questions and passages."""

    path: str | None = Field(default=None, description="a file or folder in the layout")
    layout: PassageLayout = Field(default=PassageLayout.PAIRS, description="how the data lie there")
    generated: str | None = Field(default=None, description="generated questions to train on as well, as JSON lines")
    validation_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="of the training questions, to pick the epoch with, where the data hold out none for that",
    )
    test_share: float = Field(default=0.1, ge=0, lt=1, description="the same, for the test")
    split_seed: int = Field(
        default=0, ge=0, le=LARGEST_SEED, description="which questions are held out, whatever the training's seed"
    )


class TextEncoderConfig(TextSettings):
    """A pretrained language model; see `railsearch.encoders.TextEncoder`.

    >>> TextEncoderConfig(base="models/minilm").num_query_components
    4
    """

    kind: Literal["text"] = "text"


class TextMixtureConfig(Config):
    """Mixture of Logits over the components that the encoder gives; its gate looks at their scores only.

    >>> TextMixtureConfig().temperature
    0.05
    """

    kind: Literal["mixture_of_logits"] = "mixture_of_logits"
    temperature: float = Field(default=0.05, gt=0)
    gate_dim: int = Field(default=128, ge=1)
    gate_dropout: float = Field(default=0.2, ge=0, lt=1)


TextSimilarityConfig = Annotated[TextMixtureConfig | CosineConfig, Field(discriminator="kind")]


class TextRecipe(Config):
    """All that a text retriever is made of.

    >>> recipe = TextRecipe(encoder=TextEncoderConfig(base="models/minilm"), training={"epochs": 1})
    >>> recipe.training.schedule.value
    'linear'
    """

    data: TextDataConfig = TextDataConfig()
    encoder: TextEncoderConfig
    similarity: TextSimilarityConfig = TextMixtureConfig()
    training: TextTrainingConfig = TextTrainingConfig()

    @model_validator(mode="after")
    def _check_components(self) -> Self:
        self.encoder.check_pooling()
        counts = (self.encoder.num_query_components, self.encoder.num_item_components)
        if isinstance(self.similarity, CosineConfig) and counts != (1, 1):
            raise InvalidInputError(
                f"a cosine compares one component with one but the encoder gives {counts[0]} and {counts[1]}; set "
                "num_query_components and num_item_components to 1."
            )
        return self


def read_text_recipe(file: str | Path, changes: Iterable[str] = ()) -> TextRecipe:
    """Read a recipe, with single settings changed, such as "training.epochs=5"; unknown settings are errors.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.toml"
    >>> _ = file.write_text('[encoder]\\nkind = "text"\\nbase = "models/minilm"')
    >>> read_text_recipe(file, ["encoder.pooling=parameterised"]).encoder.pooling.value
    'parameterised'
    """
    return read_config(TextRecipe, file, changes)


def read_training_data(recipe: TextRecipe, path: str | Path | None = None) -> QuestionPassages:
    """The data that a recipe names, or that lie elsewhere; questions are held out where none are.

    Generated questions join those to train on.
    """
    found = read_split_data(recipe, path)
    return found if recipe.data.generated is None else add_generated(found, recipe.data.generated)


def read_split_data(recipe: TextRecipe, path: str | Path | None = None) -> QuestionPassages:
    """The same, without generated questions."""
    config = recipe.data
    place = config.path if path is None else path
    if place is None:
        raise InvalidInputError("the recipe names no data; set data.path, or pass path=PATH.")
    found = read_passages(place, config.layout)
    validation_share = config.validation_share if found.validation is None else 0.0
    test_share = config.test_share if found.test is None else 0.0
    if len(found.train) and (validation_share or test_share):
        found = split_questions(found, validation_share=validation_share, test_share=test_share, seed=config.split_seed)
    return found


def build_text_model(recipe: TextRecipe, *, allow_download: bool = False) -> TextModel:
    """The model that a recipe describes: pretrained weights, and new ones in their first state."""
    settings = recipe.encoder.model_dump(exclude={"kind", "base"})
    encoder = TextEncoder.from_pretrained(recipe.encoder.base, allow_download=allow_download, **settings)
    return TextModel(encoder=encoder, similarity=build_text_similarity(recipe, dim=encoder.dim))


def build_text_similarity(recipe: TextRecipe, *, dim: int) -> Similarity:
    """The similarity that a recipe describes, for components of so many values."""
    if isinstance(recipe.similarity, CosineConfig):
        return DotProduct(dim=dim, cosine=True, temperature=recipe.similarity.temperature)
    mixture = MixtureOfLogits(
        num_query_components=recipe.encoder.num_query_components,
        num_item_components=recipe.encoder.num_item_components,
        component_dim=dim,
        temperature=recipe.similarity.temperature,
        query_projection=Projection.READY,
        item_projection=Projection.READY,
        gate_inputs=[GateInput.PAIR],
        gate_dim=recipe.similarity.gate_dim,
        gate_dropout=recipe.similarity.gate_dropout,
        seed=(recipe.encoder.seed + 1) % LARGEST_SEED,
    )
    assert mixture.gate.pair is not None
    last = mixture.gate.pair.output
    assert isinstance(last, nn.Linear)
    # All pairs count the same at first: random weights on scores as large as 1 / T would choose one pair for good.
    nn.init.zeros_(last.weight)
    return mixture
