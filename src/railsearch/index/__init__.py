"""HOW to find the top K of a corpus under a similarity (the paper's section 3)."""

from railsearch.index.index import Index
from railsearch.index.strategies import BruteForce, Strategy

__all__ = ["BruteForce", "Index", "Strategy"]
