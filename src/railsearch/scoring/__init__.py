"""phi for many pairs, fast and in bounded memory."""

from railsearch.scoring.exclusions import Exclusions
from railsearch.scoring.reference import score_candidates, target_ranks, top_k
from railsearch.scoring.selection import RunningBest, select_best
from railsearch.scoring.sides import compute_item_parts, compute_query_parts

__all__ = [
    "Exclusions",
    "RunningBest",
    "compute_item_parts",
    "compute_query_parts",
    "score_candidates",
    "select_best",
    "target_ranks",
    "top_k",
]
