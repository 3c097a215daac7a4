"""phi for many pairs, fast and in bounded memory."""

from railsearch.scoring.arithmetic import plain_arithmetic
from railsearch.scoring.hidden import Hidden
from railsearch.scoring.reference import score_all, score_candidates, target_ranks, top_k
from railsearch.scoring.selection import RunningBest, pack, select_best
from railsearch.scoring.sides import compute_item_parts, compute_query_parts
from railsearch.scoring.stages import Stage, now, stopwatch, timed
from railsearch.scoring.workers import for_each_block

__all__ = [
    "Hidden",
    "RunningBest",
    "Stage",
    "compute_item_parts",
    "compute_query_parts",
    "for_each_block",
    "now",
    "pack",
    "plain_arithmetic",
    "score_all",
    "score_candidates",
    "select_best",
    "stopwatch",
    "target_ranks",
    "timed",
    "top_k",
]
