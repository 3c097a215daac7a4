"""Block sizes: how many rows are computed at once, so that a block stays in the cache."""

from collections.abc import Iterator

SCORING_VALUES = 2**19
"""Values that the widest layer of a scoring block holds: 2 MiB in fp32. benchmarks/scoring_blocks.py measures other
sizes."""
BOUND_VALUES = 2**20
"""Component scores that a block of bounds holds: 4 MiB in fp32."""
SCAN_VALUES = 2**21
"""Dot products that a block of a scan holds: 8 MiB in fp32."""
SCAN_ROWS = 1024
"""The least number of rows in a block of a scan."""
QUERIES_PER_BLOCK = 32
ROWS_PER_SELECTION = 16_384
"""Items that are scored before the best are selected: few large selections are cheaper than many small ones."""


def cut(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut a range into blocks of `size`; yield the first and the last + 1 of each.

    >>> list(cut(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for first in range(0, count, size):
        yield first, min(first + size, count)


def scoring_width(values_per_pair: int, num_queries: int, pairs_per_block: int | None = None) -> int:
    """Return how many items to score at once with that many queries; a multiple of 16 if there are more than 16.

    >>> scoring_width(values_per_pair=128, num_queries=32)
    128
    """
    num_pairs = SCORING_VALUES // values_per_pair if pairs_per_block is None else pairs_per_block
    width = max(1, num_pairs // max(1, num_queries))
    return width - width % 16 if width > 16 else width
