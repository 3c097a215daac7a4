"""Rules of an answer beyond its scores: at most so many items of a category, and diversity."""

from railsearch.index.rules.applying import Ranking, apply_rules, widened
from railsearch.index.rules.rules import MaxPer, Rules

__all__ = ["MaxPer", "Ranking", "Rules", "apply_rules", "widened"]
