"""Baselines of recommendation that every learned model should beat: popularity, and neighbours by co-occurrence."""

from railsearch.baselines.contract import Baseline
from railsearch.baselines.item_knn import ItemKNN
from railsearch.baselines.popularity import Popularity

__all__ = ["Baseline", "ItemKNN", "Popularity"]
