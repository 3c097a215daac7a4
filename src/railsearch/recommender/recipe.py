"""A recipe says all that a recommender is made of: data, split, encoder, similarity, training. A readable TOML file."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from railsearch.config import Config
from railsearch.encoders import HSTU, SASRec, SequenceEncoder
from railsearch.errors import InvalidInputError
from railsearch.inputs import LARGEST_SEED
from railsearch.similarity import DotProduct, GateInput, MixtureOfLogits, Projection, Similarity
from railsearch.training import TrainingConfig


class DataConfig(Config):
    """Which interactions."""

    folder: str | None = Field(default=None, description="what `railsearch data prepare` wrote")


class SplitConfig(Config):
    """What is held out."""

    has_validation: bool = Field(
        default=True,
        description="hold out the item before the last to pick the epoch with; without it the test item picks the "
        "epoch, as in the paper's tables",
    )


class SASRecConfig(Config):
    """Self-attention over the history; see `railsearch.encoders.SASRec`.

    >>> Recipe(encoder=SASRecConfig(dim=32, num_heads=2)).encoder.max_length
    200
    """

    kind: Literal["sasrec"] = "sasrec"
    dim: int = Field(default=50, ge=1)
    num_blocks: int = Field(default=2, ge=1)
    num_heads: int = Field(default=1, ge=1)
    max_length: int = Field(default=200, ge=1)
    dropout: float = Field(default=0.2, ge=0, lt=1)


class HSTUConfig(Config):
    """Pointwise attention with time; see `railsearch.encoders.HSTU`.

    >>> Recipe(encoder=HSTUConfig(num_blocks=2)).encoder.num_heads
    2
    """

    kind: Literal["hstu"] = "hstu"
    dim: int = Field(default=50, ge=1)
    num_blocks: int = Field(default=8, ge=1)
    num_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=25, ge=1)
    max_length: int = Field(default=200, ge=1)
    dropout: float = Field(default=0.2, ge=0, lt=1)


class CosineConfig(Config):
    """The baseline: a cosine of the encoder's output and the item's embedding.

    >>> Recipe(similarity=CosineConfig()).similarity.temperature
    0.05
    """

    kind: Literal["cosine"] = "cosine"
    temperature: float = Field(default=0.05, gt=0)


class MixtureConfig(Config):
    """Mixture of Logits; see `railsearch.MixtureOfLogits`.

    >>> Recipe(similarity=MixtureConfig(user_table_size=6040)).similarity.user_dropout
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


EncoderConfig = Annotated[SASRecConfig | HSTUConfig, Field(discriminator="kind")]
SimilarityConfig = Annotated[MixtureConfig | CosineConfig, Field(discriminator="kind")]


class Recipe(Config):
    """All that a recommender is made of.

    >>> Recipe(encoder=HSTUConfig(dim=32), training=TrainingConfig(epochs=3)).training.epochs
    3
    """

    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    encoder: EncoderConfig = SASRecConfig()
    similarity: SimilarityConfig = MixtureConfig()
    training: TrainingConfig = TrainingConfig()


def read_recipe(file: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Read a recipe, with single settings changed, such as "training.epochs=5"; unknown settings are errors.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.toml"
    >>> _ = file.write_text('[encoder]\\nkind = "hstu"\\ndim = 32')
    >>> recipe = read_recipe(file, ["training.epochs=5"])
    >>> recipe.encoder.dim, recipe.training.epochs
    (32, 5)
    """
    path = Path(file)
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise InvalidInputError(f"{path} does not exist; give a recipe, such as recipes/ml-1m/sasrec.toml.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as TOML ({error}); repair it.") from error
    for change in changes:
        _apply(content, change)
    try:
        return Recipe(**content)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None


def build_encoder(recipe: Recipe, *, num_items: int) -> SequenceEncoder:
    """The encoder that a recipe describes, with its first weights."""
    settings = recipe.encoder.model_dump(exclude={"kind"})
    kind = SASRec if isinstance(recipe.encoder, SASRecConfig) else HSTU
    has_mixture = isinstance(recipe.similarity, MixtureConfig)
    return kind(num_items=num_items, normalizes_output=has_mixture, seed=recipe.training.seed, **settings)


def build_similarity(recipe: Recipe) -> Similarity:
    """The similarity that a recipe describes, with its first weights."""
    dim = recipe.encoder.dim
    if isinstance(recipe.similarity, CosineConfig):
        return DotProduct(dim=dim, cosine=True, temperature=recipe.similarity.temperature)
    settings = recipe.similarity.model_dump(exclude={"kind"})
    return MixtureOfLogits(query_dim=dim, item_dim=dim, seed=(recipe.training.seed + 1) % LARGEST_SEED, **settings)


def _apply(content: dict[str, object], change: str) -> None:
    """Put one "section.setting=value" into a recipe's content; the value is read as TOML, or else as text.

    Without a value the setting is left out of the recipe: TOML has no word for none.
    """
    name, has_value, text = change.partition("=")
    section, has_section, setting = name.strip().partition(".")
    if not (has_value and has_section):
        raise InvalidInputError(f"{change!r} is no change of a setting; write section.setting=value.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    settings = content.setdefault(section, {})
    if not isinstance(settings, dict):
        raise InvalidInputError(f"{section} is no section of the recipe; known are: {', '.join(Recipe.model_fields)}.")
    if text.strip():
        settings[setting] = value
    elif settings.pop(setting, None) is None:
        raise InvalidInputError(f"{change!r} would leave out a setting that the recipe does not have.")
