"""Training: the loop, losses, negatives, checkpoints, and the fit of a similarity on existing embeddings."""

from railsearch.training.config import LoopConfig, Schedule, TextTrainingConfig, TrainingConfig
from railsearch.training.fit import fit_similarity
from railsearch.training.negatives import Negatives
from railsearch.training.report import EpochReport, FitReport
from railsearch.training.tasks.pairs import as_pairs, seen_items

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
