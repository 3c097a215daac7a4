"""The front door for recommendation: fit on interactions, recommend, evaluate, index, save and load."""

from railsearch.recommender.recipe import (
    DataConfig,
    HSTUConfig,
    Recipe,
    SASRecConfig,
    SplitConfig,
    read_recipe,
)
from railsearch.recommender.recommender import Recommender

__all__ = [
    "DataConfig",
    "HSTUConfig",
    "Recipe",
    "Recommender",
    "SASRecConfig",
    "SplitConfig",
    "read_recipe",
]
