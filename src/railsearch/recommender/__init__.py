"""The front door for recommendation: fit on interactions, recommend, evaluate, index, save and load."""

from railsearch.recommender.recipe import (
    CosineConfig,
    DataConfig,
    HSTUConfig,
    MixtureConfig,
    Recipe,
    SASRecConfig,
    SplitConfig,
    read_recipe,
)
from railsearch.recommender.recommender import Recommender

__all__ = [
    "CosineConfig",
    "DataConfig",
    "HSTUConfig",
    "MixtureConfig",
    "Recipe",
    "Recommender",
    "SASRecConfig",
    "SplitConfig",
    "read_recipe",
]
