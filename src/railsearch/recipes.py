"""Recipes: the settings of a model and its training as TOML files, and the classes that check them."""

from collections.abc import Iterable
from pathlib import Path

from railsearch.encoders import TextEncoderConfig
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.settings import read_settings
from railsearch.recommender import (
    DataConfig,
    HSTUConfig,
    Recipe,
    SASRecConfig,
    SplitConfig,
    read_interactions_of,
)
from railsearch.similarity import CosineConfig, MixtureConfig, RegisteredConfig
from railsearch.text_retriever import TextDataConfig, TextMixtureConfig, TextRecipe, read_training_data
from railsearch.training import TextTrainingConfig, TrainingConfig

__all__ = [
    "CosineConfig",
    "DataConfig",
    "HSTUConfig",
    "MixtureConfig",
    "Recipe",
    "RegisteredConfig",
    "SASRecConfig",
    "SplitConfig",
    "TextDataConfig",
    "TextEncoderConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextTrainingConfig",
    "TrainingConfig",
    "read_interactions_of",
    "read_recipe",
    "read_training_data",
]

ENCODERS = ("sasrec", "hstu", "text")


def read_recipe(file: str | Path, changes: Iterable[str] = ()) -> Recipe | TextRecipe:
    """Read a recipe of a recommender or a text retriever; the kind of its encoder decides which.

    Args:
        file: a TOML file; unknown settings are refused.
        changes: single settings that replace those of the file, such as "training.epochs=5"; without a value, such as
            "training.patience=", the setting is omitted.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.toml"
    >>> _ = file.write_text('[encoder]\\nkind = "text"\\nbase = "models/minilm"')
    >>> read_recipe(file, ["encoder.pooling=parameterised"]).encoder.pooling.value
    'parameterised'
    """
    changes = list(changes)
    encoder = read_settings(file, changes).get("encoder", {})
    if not isinstance(encoder, dict):
        raise InvalidInputError(f"{file}: encoder is {encoder!r}; make it a section, [encoder].")
    kind = encoder.get("kind", "text" if "base" in encoder else "sasrec")
    if kind not in ENCODERS:
        raise InvalidInputError(f"{file}: encoder.kind is {kind!r}; choose from: {', '.join(ENCODERS)}.")
    return TextRecipe.read(file, changes) if kind == "text" else Recipe.read(file, changes)
