"""Search strategies: small frozen settings that say how to find the top K (the paper's section 3).

Every strategy has the same four steps: choose candidates, score them with phi, keep K, and report the ceiling of the
items that it did not score. An answer is exact if that ceiling is not above the k-th score.
"""

from railsearch.index.strategies.adaptive import Adaptive
from railsearch.index.strategies.brute_force import BruteForce
from railsearch.index.strategies.by_average import Average
from railsearch.index.strategies.by_component import Combined, PerComponent
from railsearch.index.strategies.by_weights import Weighted
from railsearch.index.strategies.contract import FloorStrategy, Found, Strategy
from railsearch.index.strategies.two_pass import TwoPass

__all__ = [
    "Adaptive",
    "Average",
    "BruteForce",
    "Combined",
    "FloorStrategy",
    "Found",
    "PerComponent",
    "Strategy",
    "TwoPass",
    "Weighted",
]
