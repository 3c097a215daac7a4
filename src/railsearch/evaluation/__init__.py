"""The quality of a model: ranks of held-out items, metrics, and baselines (the paper's section 4)."""

from railsearch.evaluation.bm25 import rank_with_bm25
from railsearch.evaluation.questions import evaluate_questions
from railsearch.evaluation.ranking import Evaluation, evaluate_test

__all__ = ["Evaluation", "evaluate_questions", "evaluate_test", "rank_with_bm25"]
