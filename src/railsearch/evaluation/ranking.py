"""Evaluation of a recommender: the ranks of the test items among all items."""

import torch
from torch import Tensor

from railsearch.data import Split
from railsearch.evaluation.report import Evaluation
from railsearch.evaluation.runs import Run, right_items
from railsearch.foundation.inputs import check_count
from railsearch.models import ITEM_CUTOFFS, SequentialModel, list_held_out, rank_held_out


def evaluate_test(
    model: SequentialModel, split: Split, *, user_rows: Tensor | None = None, depth: int = 0
) -> Evaluation:
    """Rank every user's test item, and return HR at 1, 10, 50 and 200, MRR, and NDCG at 10, 50 and 200.

    Args:
        model: the model to measure.
        split: a split of interactions with the items of the model.
        user_rows: as in `rank_held_out`.
        depth: the items of each user that are kept in `run`; 0 keeps none, and no more than all are kept.
    """
    events, test = split.interactions, split.test
    depth = min(check_count(depth, name="depth", minimum=0), events.num_items)
    ranks = rank_held_out(model, events, test, user_rows=user_rows)
    run = None
    if depth:
        rows, scores = list_held_out(model, events, test, depth, user_rows=user_rows)  # (Q, K)
        names = tuple(str(events.user_ids[row]) for row in test.users.tolist())
        pairs = torch.stack([torch.arange(len(test.items)), test.items], dim=1)  # (Q, 2)
        run = Run(names, tuple(map(str, events.item_ids)), rows, scores, right_items(pairs, None))
    return Evaluation.of_ranks(ranks, cutoffs=ITEM_CUTOFFS, protocol=split.protocol, query_rows=test.users, run=run)
