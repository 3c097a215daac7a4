"""phi for many pairs, fast and in bounded memory."""

from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.kernels.reference import score_all, score_candidates, target_ranks, top_k
from railsearch.kernels.row_filter import RowFilter
from railsearch.kernels.selection import RunningBest, pack, select_best
from railsearch.kernels.sides import compute_item_parts, compute_query_parts
from railsearch.kernels.stages import Stage, now, stopwatch, timed
from railsearch.kernels.workers import for_each_block

__all__ = [
    "RowFilter",
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
