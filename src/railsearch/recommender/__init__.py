"""Recommendation in one class: fit on interactions, evaluate, index, search, recommend, save and load."""

from railsearch.index.rules import MaxPer
from railsearch.recommender.adding import AddedItems
from railsearch.recommender.cold_start import ColdStart
from railsearch.recommender.dry_run import dry_run
from railsearch.recommender.recipe import (
    DataConfig,
    HSTUConfig,
    Recipe,
    SASRecConfig,
    SplitConfig,
    read_interactions_of,
)
from railsearch.recommender.recommender import Recommender
from railsearch.recommender.updating import update_recipe

__all__ = [
    "AddedItems",
    "ColdStart",
    "DataConfig",
    "HSTUConfig",
    "MaxPer",
    "Recipe",
    "Recommender",
    "SASRecConfig",
    "SplitConfig",
    "dry_run",
    "read_interactions_of",
    "update_recipe",
]
