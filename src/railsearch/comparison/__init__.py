"""The comparison of simple systems with a Mixture of Logits on the same data, with a verdict in words."""

from railsearch.comparison.compare import compare
from railsearch.comparison.report import Comparison, System
from railsearch.comparison.verdict import Pairing

__all__ = ["Comparison", "Pairing", "System", "compare"]
