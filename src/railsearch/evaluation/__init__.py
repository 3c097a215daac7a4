"""The quality of a model: ranks of held-out items, metrics with confidence intervals, what is recommended beyond
accuracy, and baselines (section 4)."""

from railsearch.evaluation.analysis import Analysis, analyze_test
from railsearch.evaluation.beyond import coverage, diversity, gini, novelty, popularity_share
from railsearch.evaluation.bm25 import rank_with_bm25
from railsearch.evaluation.intervals import Difference, Interval
from railsearch.evaluation.questions import evaluate_questions
from railsearch.evaluation.ranking import evaluate_test
from railsearch.evaluation.report import Evaluation, paired_difference
from railsearch.evaluation.runs import Run
from railsearch.evaluation.segments import Segment
from railsearch.evaluation.similarity import evaluate

__all__ = [
    "Analysis",
    "Difference",
    "Evaluation",
    "Interval",
    "Run",
    "Segment",
    "analyze_test",
    "coverage",
    "diversity",
    "evaluate",
    "evaluate_questions",
    "evaluate_test",
    "gini",
    "novelty",
    "paired_difference",
    "popularity_share",
    "rank_with_bm25",
]
