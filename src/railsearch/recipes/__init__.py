"""Recipes: the settings of a model and its training as TOML files, and the classes that check them."""

from railsearch.encoders import TextEncoderConfig
from railsearch.recipes.reading import read_recipe
from railsearch.recipes.shipped import ShippedRecipe, copy_recipe, recipe_file, shipped_recipe, shipped_recipes
from railsearch.recommender import (
    DataConfig,
    HSTUConfig,
    Recipe,
    SASRecConfig,
    SplitConfig,
    dry_run,
    read_interactions_of,
    update_recipe,
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
    "ShippedRecipe",
    "SplitConfig",
    "TextDataConfig",
    "TextEncoderConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextTrainingConfig",
    "TrainingConfig",
    "copy_recipe",
    "dry_run",
    "read_interactions_of",
    "read_recipe",
    "read_training_data",
    "recipe_file",
    "shipped_recipe",
    "shipped_recipes",
    "update_recipe",
]
