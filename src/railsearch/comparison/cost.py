"""The cost of systems that are compared: milliseconds per query side by side, and bytes per item."""

import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from railsearch.index import BruteForce, Index
from railsearch.kernels import compute_item_parts, now
from railsearch.similarity import Similarity

FEWEST_ROUNDS = 5
MOST_ROUNDS = 50
SECONDS = 3.0
"""Rounds go on for so long, so that short searches are measured often."""
BATCH_SIZE = 32
MOST_QUERIES = 256
"""Queries of one round; more take longer and change little."""
DEPTH = 10
"""Items that each search returns."""
SAMPLE = 64
"""Items whose size is measured."""

Search = Callable[[], object]


def time_searches(searches: Sequence[Search | None], *, num_queries: int) -> list[float | None]:
    """Return the milliseconds per query of each search: the median of several rounds, one search after the other.

    Every round runs all of them, so that a busy machine slows all of them down. None stands for a system that cannot
    be searched.
    """
    seconds: list[list[float]] = [[] for _ in searches]
    begin = now()
    for number in range(1 + MOST_ROUNDS):
        for search, own in zip(searches, seconds, strict=True):
            if search is None:
                continue
            started = now()
            search()
            if number > 0:  # the first round warms up
                own.append(now() - started)
        if number >= FEWEST_ROUNDS and now() - begin > SECONDS:
            break
    return [1e3 * statistics.median(own) / num_queries if own else None for own in seconds]


def index_search(similarity: Similarity, items: Tensor, queries: Tensor, user_ids: Tensor | None = None) -> Search:
    """Return a search of all items for these queries by brute force, in batches; the index is built here."""
    index = Index.build(similarity, items, show_progress=False)
    k = min(DEPTH, len(items))
    batches = torch.split(torch.arange(len(queries)), BATCH_SIZE)

    def search() -> None:
        for rows in batches:
            users = None if user_ids is None else user_ids[rows]
            index.search(queries[rows], k, BruteForce(), user_ids=users)

    return search


def timed_queries(queries: Tensor) -> Tensor:
    """Return the queries that a round searches for."""
    return queries[:MOST_QUERIES]


def bytes_per_item(similarity: Similarity, items: Tensor) -> int:
    """Return the memory of one item in an index: its components, and its side of the gate."""
    parts = compute_item_parts(similarity, items[:SAMPLE])
    tensors = [parts.components] if parts.gate is None else [parts.components, parts.gate]
    return sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
