"""A recipe says all that a recommender is made of: data, split, encoder, similarity, training. A readable TOML file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from railsearch.encoders import HSTU, SASRec, SequenceEncoder
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import Config, read_config
from railsearch.similarity import CosineConfig, DotProduct, MixtureConfig, MixtureOfLogits, Similarity
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
    return read_config(Recipe, file, changes)


def build_encoder(recipe: Recipe, *, num_items: int, seed: int | None) -> SequenceEncoder:
    """Build the encoder that a recipe describes, with its first weights."""
    settings = recipe.encoder.model_dump(exclude={"kind"})
    kind = SASRec if isinstance(recipe.encoder, SASRecConfig) else HSTU
    has_mixture = isinstance(recipe.similarity, MixtureConfig)
    return kind(num_items=num_items, normalizes_output=has_mixture, seed=seed, **settings)


def build_similarity(recipe: Recipe, *, seed: int | None) -> Similarity:
    """Build the similarity that a recipe describes, with its first weights."""
    dim = recipe.encoder.dim
    if isinstance(recipe.similarity, CosineConfig):
        return DotProduct(dim=dim, cosine=True, temperature=recipe.similarity.temperature)
    settings = recipe.similarity.model_dump(exclude={"kind"})
    own_seed = None if seed is None else (seed + 1) % LARGEST_SEED
    return MixtureOfLogits(query_dim=dim, item_dim=dim, seed=own_seed, **settings)
