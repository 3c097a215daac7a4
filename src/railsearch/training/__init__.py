"""Training: the loop, losses, negatives, checkpoints, and the fit of a similarity on existing embeddings."""

from railsearch.training.config import LoopConfig, Schedule, TextTrainingConfig, TrainingConfig
from railsearch.training.fit import fit_similarity
from railsearch.training.negatives import Negatives
from railsearch.training.report import EpochReport, FitReport

__all__ = [
    "EpochReport",
    "FitReport",
    "LoopConfig",
    "Negatives",
    "Schedule",
    "TextTrainingConfig",
    "TrainingConfig",
    "fit_similarity",
]
