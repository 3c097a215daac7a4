"""The recipe of a recommender: data, split, encoder, similarity and training, readable as a TOML file."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from railsearch.data import Interactions, read_prepared
from railsearch.encoders import HSTU, SASRec, SequenceEncoder
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import LARGEST_DEPTH, LARGEST_SIZE, Config
from railsearch.similarity import CosineConfig, MixtureConfig, Similarity, SimilarityConfig, similarity_from
from railsearch.training import TrainingConfig


class DataConfig(Config):
    """The interactions."""

    folder: str | None = Field(default=None, description="a folder that `railsearch data prepare` wrote")


class SplitConfig(Config):
    """The events that are held out."""

    has_validation: bool = Field(
        default=True,
        description="hold out the item before the last to pick the epoch; otherwise the test item picks the "
        "epoch, as in the paper's tables",
    )


class SequenceConfig(Config):
    """Settings that all sequence encoders have."""

    dim: int = Field(default=50, ge=1, le=LARGEST_SIZE, description="D, the size of item embeddings and of outputs")
    max_length: int = Field(
        default=200, ge=1, le=LARGEST_SIZE, description="the longest history; a longer one is cut to its last events"
    )
    dropout: float = Field(default=0.2, ge=0, lt=1, description="share of values dropped while training")
    normalizes_output: bool | None = Field(
        default=None,
        description="apply layer norm to outputs; by default false if the similarity is a cosine or starts as one",
    )
    item_features: str | None = Field(
        default=None,
        description="column of the items table with a list of numbers for each item, such as an embedding of its text: "
        "items that were not there in training can then be added",
    )
    item_ids: bool = Field(
        default=True, description="learn a row for each item; false uses item_features in place of these rows"
    )
    item_id_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of item lookups in training that use item_features alone; helps new items",
    )

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        if not self.item_ids and self.item_features is None:
            raise ValueError("item_ids is false but item_features names no column; name one, or set item_ids to true")
        return self


class SASRecConfig(SequenceConfig):
    """Self-attention over the history; see `railsearch.encoders.SASRec`.

    >>> Recipe(encoder=SASRecConfig(dim=32, num_heads=2)).encoder.max_length
    200
    """

    kind: Literal["sasrec"] = "sasrec"
    num_blocks: int = Field(default=2, ge=1, le=LARGEST_DEPTH, description="blocks of attention and feed-forward")
    num_heads: int = Field(default=1, ge=1, le=LARGEST_SIZE, description="attention heads; must divide dim")


class HSTUConfig(SequenceConfig):
    """Pointwise attention with time; see `railsearch.encoders.HSTU`.

    >>> Recipe(encoder=HSTUConfig(num_blocks=2)).encoder.num_heads
    2
    """

    kind: Literal["hstu"] = "hstu"
    num_blocks: int = Field(default=8, ge=1, le=LARGEST_DEPTH, description="blocks")
    num_heads: int = Field(default=2, ge=1, le=LARGEST_SIZE, description="attention heads")
    head_dim: int = Field(default=25, ge=1, le=LARGEST_SIZE, description="size of queries, keys and values in one head")


EncoderConfig = Annotated[SASRecConfig | HSTUConfig, Field(discriminator="kind")]


class Recipe(Config):
    """Everything that a recommender is built from.

    >>> Recipe(encoder=HSTUConfig(dim=32), training=TrainingConfig(epochs=3)).training.epochs
    3
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.toml"
    >>> _ = file.write_text('[encoder]\\nkind = "hstu"\\ndim = 32')
    >>> recipe = Recipe.read(file, ["training.epochs=5"])
    >>> recipe.encoder.dim, recipe.training.epochs
    (32, 5)
    """

    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    encoder: EncoderConfig = SASRecConfig()
    similarity: SimilarityConfig = MixtureConfig()
    training: TrainingConfig = TrainingConfig()


def read_interactions_of(recipe: Recipe, path: str | Path | None = None) -> Interactions:
    """Read the prepared data that a recipe names, or data in another folder."""
    folder = recipe.data.folder if path is None else path
    if folder is None:
        raise InvalidInputError("the recipe names no data; set data.folder, or pass path=PATH.")
    return read_prepared(folder)


def starts_as_cosine(recipe: Recipe) -> bool:
    """Return whether the similarity is a mixture that is a cosine before training."""
    return isinstance(recipe.similarity, MixtureConfig) and recipe.similarity.starts_as_cosine


def build_encoder(
    recipe: Recipe,
    *,
    num_items: int,
    seed: int | None,
    features: Tensor | None = None,
    feature_dim: int | None = None,
) -> SequenceEncoder:
    """Build the encoder that a recipe describes, with its initial weights.

    Args:
        recipe: the settings.
        num_items: N, the number of items.
        seed: seed of the initial weights.
        features: (N, F) features of the items, if the recipe names some.
        feature_dim: F, if features are loaded with the weights.
    """
    settings = recipe.encoder.model_dump(exclude={"kind", "normalizes_output", "item_features"})
    kind = SASRec if isinstance(recipe.encoder, SASRecConfig) else HSTU
    normalizes = recipe.encoder.normalizes_output
    if normalizes is None:
        normalizes = not (starts_as_cosine(recipe) or isinstance(recipe.similarity, CosineConfig))
    return kind(
        num_items=num_items,
        normalizes_output=normalizes,
        item_features=features,
        feature_dim=feature_dim,
        seed=seed,
        **settings,
    )


def build_similarity(recipe: Recipe, *, seed: int | None) -> Similarity:
    """Build the similarity that a recipe describes, with its initial weights."""
    dim = recipe.encoder.dim
    own_seed = None if seed is None else (seed + 1) % LARGEST_SEED
    return similarity_from(recipe.similarity, {"dim": dim, "query_dim": dim, "item_dim": dim, "seed": own_seed})
