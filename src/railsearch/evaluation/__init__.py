"""The quality of a model: ranks of held-out items, metrics with confidence intervals, and baselines (section 4)."""

from railsearch.evaluation.bm25 import rank_with_bm25
from railsearch.evaluation.intervals import Difference, Interval
from railsearch.evaluation.questions import evaluate_questions
from railsearch.evaluation.ranking import evaluate_test
from railsearch.evaluation.report import Evaluation, paired_difference
from railsearch.evaluation.similarity import evaluate

__all__ = [
    "Difference",
    "Evaluation",
    "Interval",
    "evaluate",
    "evaluate_questions",
    "evaluate_test",
    "paired_difference",
    "rank_with_bm25",
]
