"""Estimates of the memory that a search or a build needs, checked before it starts.

Every estimate is a lower bound: it counts only the large arrays that are certainly in memory at the same time. So no
search and no build is refused that could be done. Arrays that lie in mapped files are not counted.
"""

from typing import TYPE_CHECKING

import torch

from railsearch.foundation import memory
from railsearch.index.corpus import Corpus
from railsearch.similarity import ItemParts

if TYPE_CHECKING:
    from railsearch.index.strategies import Strategy

BYTES_PER_RESULT = 12
"""A row or an id in int64, and a score in fp32."""


def check_search(corpus: Corpus, strategy: "Strategy", num_queries: int, k: int, *, queries_per_batch: int) -> None:
    """Refuse a search that needs more memory than there is: its results, its largest batch, and tables to be built."""
    needed = BYTES_PER_RESULT * num_queries * k
    of_strategy = getattr(strategy, "memory_needed", None)  # optional, for strategies of users
    if of_strategy is not None:
        needed += of_strategy(corpus, min(num_queries, queries_per_batch), k)
    if needed <= memory.SMALL:  # most searches: the words of an error would cost more than the check
        return
    memory.check_memory(
        needed,
        work=f"a search of {num_queries:,} queries with k = {k:,} among {len(corpus.ids):,} items by {strategy}",
        remedy="search fewer queries at once, ask for a smaller k, or choose another strategy or engine",
    )


def check_build(
    example: ItemParts, num_items: int | None, *, dtype: torch.dtype | None, rows_per_segment: int | None
) -> None:
    """Refuse a build that needs more memory than there is; `rows_per_segment` is None if it is in memory.

    In memory, all items are kept. In a folder, it is one segment at a time, and the ids of all items.

    Args:
        example: parts of one item, as they are computed.
        num_items: their number, if it is known in advance.
        dtype: the precision of the stored parts; None for that of the example.
        rows_per_segment: the most rows of a segment in a folder.
    """
    if num_items is None:
        return
    rows = num_items if rows_per_segment is None else min(num_items, rows_per_segment)
    size = example.components.element_size() if dtype is None else dtype.itemsize
    num_values = example.components[0].numel() + (0 if example.gate is None else example.gate[0].numel())
    sums = example.components.shape[-1] * max(size, 4)
    memory.check_memory(
        rows * (num_values * size + sums) + 8 * num_items,
        work=f"an index of {num_items:,} items {'in memory' if rows_per_segment is None else 'in a folder'}",
        remedy="build it in a folder, in batches, or store items in fp16"
        if rows_per_segment is None
        else "build it on a machine with more memory",
    )
