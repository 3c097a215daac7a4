"""Full-ranking evaluation of a recommender: where the held-out items stand, and by which protocol."""

from dataclasses import dataclass

from railsearch.data import Split
from railsearch.metrics import ndcg, summarize
from railsearch.training.sequential import SequentialModel, rank_held_out

RANKS = (1, 10, 50, 200)
"""The k of HR@k and NDCG@k."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics, and the protocol that they were measured by."""

    metrics: dict[str, float]
    protocol: str
    num_users: int

    def __str__(self) -> str:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        return f"{figures}\n{self.protocol}"


def evaluate_test(model: SequentialModel, split: Split) -> Evaluation:
    """Rank the test item of every user of a split: HR and NDCG at 1, 10, 50 and 200, and MRR."""
    ranks = rank_held_out(model, split.interactions, split.test)
    hits = summarize(ranks, ks=RANKS)
    metrics = {**hits, **{f"NDCG@{k}": ndcg(ranks, k) for k in RANKS[1:]}}
    return Evaluation(metrics, split.protocol, len(ranks))
