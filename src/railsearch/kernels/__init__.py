"""The arithmetic under every search: scores, bounds and dot products of many query-item pairs, in bounded memory."""

from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.kernels.choose import (
    KernelName,
    choose_kernel,
    choose_scan,
    int8_table_bytes,
    make_int8_table,
    use_kernel,
)
from railsearch.kernels.contract import (
    NO_ROW,
    BestAbove,
    BestByComponent,
    ItemRows,
    Kernel,
    Nearest,
    Roundoff,
    Scan,
)
from railsearch.kernels.lists import select_best, unite
from railsearch.kernels.native import Int8Table, SharedSoftmax, shared_softmax
from railsearch.kernels.ranks import best_ranks, ranks_among, target_ranks
from railsearch.kernels.row_filter import RowFilter
from railsearch.kernels.selection import RunningBest, pack
from railsearch.kernels.sides import compute_item_parts, compute_query_parts, has_stable_sides
from railsearch.kernels.stages import Stage, now, stopwatch, timed
from railsearch.kernels.torch_kernel import TorchKernel
from railsearch.kernels.training_scores import can_share_softmax, training_scores, values_per_training_pair
from railsearch.kernels.workers import for_each_block

__all__ = [
    "NO_ROW",
    "BestAbove",
    "BestByComponent",
    "Int8Table",
    "ItemRows",
    "Kernel",
    "KernelName",
    "Nearest",
    "Roundoff",
    "RowFilter",
    "RunningBest",
    "Scan",
    "SharedSoftmax",
    "Stage",
    "TorchKernel",
    "best_ranks",
    "can_share_softmax",
    "choose_kernel",
    "choose_scan",
    "compute_item_parts",
    "compute_query_parts",
    "for_each_block",
    "has_stable_sides",
    "int8_table_bytes",
    "make_int8_table",
    "now",
    "pack",
    "plain_arithmetic",
    "ranks_among",
    "select_best",
    "shared_softmax",
    "stopwatch",
    "target_ranks",
    "timed",
    "training_scores",
    "unite",
    "use_kernel",
    "values_per_training_pair",
]
