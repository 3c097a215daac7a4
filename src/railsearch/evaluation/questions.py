"""Evaluation of a text model: the ranks of the right passages of test questions among all passages."""

from pathlib import Path

from railsearch.data import QuestionPassages
from railsearch.evaluation.report import Evaluation
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import PASSAGE_CUTOFFS, TextModel, rank_questions


def evaluate_questions(model: TextModel, data: QuestionPassages, *, show_progress: bool | None = None) -> Evaluation:
    """Rank the right passages of every test question among all passages, and return HR, NDCG and MRR."""
    if data.test is None:
        raise InvalidInputError(f"{data.source} has no test questions; hold some out with split_questions.")
    item_parts = model.item_parts(data.passages, show_progress=show_progress)
    ranks = rank_questions(model, data.test, item_parts)
    return Evaluation.of_ranks(ranks, cutoffs=PASSAGE_CUTOFFS, protocol=question_protocol(data))


def question_protocol(data: QuestionPassages) -> str:
    """Return a sentence that describes how test questions are ranked."""
    assert data.test is not None
    return (
        f"{len(data.test):,} test questions of {Path(data.source).name}, ranked against all {len(data.passages):,} "
        "passages; the best-placed right passage of each question counts"
    )
