"""Training: negatives, losses, and the fit of a similarity on embeddings that are already there."""

from railsearch.training.fit import EpochReport, FitReport, fit_similarity
from railsearch.training.negatives import Negatives
from railsearch.training.pairs import as_pairs, seen_items

__all__ = ["EpochReport", "FitReport", "Negatives", "as_pairs", "fit_similarity", "seen_items"]
