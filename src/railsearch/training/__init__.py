"""Training: negatives, losses, and the fit of a similarity on embeddings that are already there."""

from railsearch.training.config import LoopConfig, Schedule, TextTrainingConfig, TrainingConfig
from railsearch.training.fit import fit_similarity
from railsearch.training.negatives import Negatives
from railsearch.training.pairs import as_pairs, seen_items
from railsearch.training.report import EpochReport, FitReport

__all__ = [
    "EpochReport",
    "FitReport",
    "LoopConfig",
    "Negatives",
    "Schedule",
    "TextTrainingConfig",
    "TrainingConfig",
    "as_pairs",
    "fit_similarity",
    "seen_items",
]
