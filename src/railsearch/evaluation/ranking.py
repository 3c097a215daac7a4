"""Evaluation of a recommender: the ranks of the test items among all items."""

from dataclasses import dataclass

from torch import Tensor

from railsearch.data import Split
from railsearch.foundation.metrics import ndcg, summarize
from railsearch.models import ITEM_CUTOFFS, SequentialModel, rank_held_out


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics, and the protocol of their measurement."""

    metrics: dict[str, float]
    protocol: str
    num_queries: int
    """Number of users or questions."""

    def __str__(self) -> str:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        return f"{figures}\n{self.protocol}"


def evaluate_test(model: SequentialModel, split: Split, *, user_rows: Tensor | None = None) -> Evaluation:
    """Rank every user's test item, and return HR at 1, 10, 50 and 200, MRR, and NDCG at 10, 50 and 200.

    Args:
        model: the model to measure.
        split: a split of interactions with the items of the model.
        user_rows: as in `rank_held_out`.
    """
    ranks = rank_held_out(model, split.interactions, split.test, user_rows=user_rows)
    hits = summarize(ranks, ks=ITEM_CUTOFFS)
    metrics = {**hits, **{f"NDCG@{k}": ndcg(ranks, k) for k in ITEM_CUTOFFS[1:]}}
    return Evaluation(metrics, split.protocol, len(ranks))
