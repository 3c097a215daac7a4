"""Evaluation of a recommender: the ranks of the test items among all items."""

from torch import Tensor

from railsearch.data import Split
from railsearch.evaluation.report import Evaluation
from railsearch.models import ITEM_CUTOFFS, SequentialModel, rank_held_out


def evaluate_test(model: SequentialModel, split: Split, *, user_rows: Tensor | None = None) -> Evaluation:
    """Rank every user's test item, and return HR at 1, 10, 50 and 200, MRR, and NDCG at 10, 50 and 200.

    Args:
        model: the model to measure.
        split: a split of interactions with the items of the model.
        user_rows: as in `rank_held_out`.
    """
    ranks = rank_held_out(model, split.interactions, split.test, user_rows=user_rows)
    return Evaluation.of_ranks(ranks, cutoffs=ITEM_CUTOFFS, protocol=split.protocol, query_rows=split.test.users)
