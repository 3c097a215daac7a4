"""Training: the loop, losses, negatives, checkpoints, and the fit of a similarity on existing embeddings."""

from railsearch.training.config import LoopConfig, Schedule, TextTrainingConfig, TrainingConfig
from railsearch.training.distillation import TeacherLoss
from railsearch.training.fit import fit_similarity
from railsearch.training.negatives import Negatives
from railsearch.training.report import EpochReport, FitReport
from railsearch.training.teacher import TeacherLike

__all__ = [
    "EpochReport",
    "FitReport",
    "LoopConfig",
    "Negatives",
    "Schedule",
    "TeacherLike",
    "TeacherLoss",
    "TextTrainingConfig",
    "TrainingConfig",
    "fit_similarity",
]
