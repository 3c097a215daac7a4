"""Evaluation of a text model: the ranks of the right passages of test questions among all passages."""

from pathlib import Path

from railsearch.data import QuestionPassages
from railsearch.evaluation.report import Evaluation
from railsearch.evaluation.runs import Run, right_items
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count
from railsearch.models import PASSAGE_CUTOFFS, TextModel, list_passages, rank_questions


def evaluate_questions(
    model: TextModel, data: QuestionPassages, *, depth: int = 0, show_progress: bool | None = None
) -> Evaluation:
    """Rank the right passages of every test question among all passages, and return HR, NDCG and MRR.

    Args:
        model: the model to measure.
        data: data with test questions.
        depth: the passages of each question that are kept in `run`; 0 keeps none, and no more than all are kept.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    if data.test is None:
        raise InvalidInputError(f"{data.source} has no test questions; hold some out with split_questions.")
    depth = min(check_count(depth, name="depth", minimum=0), len(data.passages))
    item_parts = model.item_parts(data.passages, show_progress=show_progress)
    ranks = rank_questions(model, data.test, item_parts)
    run = None
    if depth:
        rows, scores = list_passages(model, data.test, item_parts, depth)  # (Q, K)
        run = Run(data.test.ids, data.passage_ids, rows, scores, right_items(data.test.pairs, data.test.grades))
    return Evaluation.of_ranks(ranks, cutoffs=PASSAGE_CUTOFFS, protocol=question_protocol(data), run=run)


def question_protocol(data: QuestionPassages) -> str:
    """Return a sentence that describes how test questions are ranked."""
    assert data.test is not None
    return (
        f"{len(data.test):,} test questions of {Path(data.source).name}, ranked against all {len(data.passages):,} "
        "passages; the best-placed right passage of each question counts"
    )
