"""First stages: cheap dot products that say which items are worth scoring (the paper's section 3.2)."""

import torch
from torch import Tensor

from railsearch.index.corpus import VALUES_PER_BLOCK, Corpus
from railsearch.scoring import Hidden, RunningBest, Stage, pack, timed
from railsearch.similarity import QueryParts

NO_ROW = -1
"""Stands where a list of rows has nothing more to give."""


@timed(Stage.FIRST_STAGE)
def best_by_average(corpus: Corpus, query_parts: QueryParts, n: int, hidden: Hidden | None) -> Tensor:
    """Rows (B, n) with the best average component score: one dot product an item, whatever P is."""
    vectors = query_parts.components.sum(dim=1)  # (B, d)
    best = RunningBest(min(n, len(corpus)))
    rows_per_block = max(1024, 2 * VALUES_PER_BLOCK // max(1, len(vectors)))
    for first in range(0, len(corpus), rows_per_block):
        scores = vectors @ corpus.sums[first : first + rows_per_block].T  # (B, n)
        if hidden is not None:
            hidden.hide(scores, first)
        best.update(scores, torch.arange(first, first + scores.shape[1], device=scores.device))
    found, rows = best.result()
    return rows.masked_fill(found == -torch.inf, NO_ROW)


@timed(Stage.FIRST_STAGE)
def best_per_component(corpus: Corpus, query_parts: QueryParts, n: int, hidden: Hidden | None) -> tuple[Tensor, Tensor]:
    """Rows (B, P * n) of the n best items of each component pair, and the best component score (B, N) of all items.

    One pass over the corpus gives both, so that the ceiling of what is not chosen is known exactly.
    """
    num_queries, num_query_components, dim = query_parts.components.shape
    vectors = (query_parts.components / corpus.similarity.temperature).reshape(-1, dim)  # (B * Pq, d)
    bounds = vectors.new_full((num_queries, len(corpus)), -torch.inf)  # (B, N)
    rows_per_block = max(1024, 2 * VALUES_PER_BLOCK // max(1, len(vectors)))
    lists = []
    for component in range(corpus.similarity.num_item_components):
        best = RunningBest(min(n, len(corpus)))
        for first in range(0, len(corpus), rows_per_block):
            table = corpus.parts.components[first : first + rows_per_block, component].to(vectors.dtype)  # (n, d)
            scores = vectors @ table.T  # (B * Pq, n)
            by_query = scores.view(num_queries, num_query_components, len(table))  # (B, Pq, n)
            if hidden is not None:
                hidden.hide(by_query, first)
            seen = bounds[:, first : first + len(table)]  # (B, n)
            best_of_query = by_query.amax(dim=1)  # (B, n)
            if not corpus.similarity.is_certifiable:
                best_of_query.masked_fill_(best_of_query > -torch.inf, torch.inf)
            seen.copy_(torch.maximum(seen, best_of_query))
            best.update(scores, torch.arange(first, first + len(table), device=scores.device))
        found, rows = best.result()
        rows = rows.masked_fill(found == -torch.inf, NO_ROW)  # (B * Pq, n)
        lists.append(rows.view(num_queries, num_query_components * rows.shape[1]))  # (B, Pq * n)
    return torch.cat(lists, dim=1), bounds


@timed(Stage.FIRST_STAGE)
def unite(lists: list[Tensor], num_rows: int) -> tuple[Tensor, Tensor]:
    """Rows (B, C) that any of the lists (B, n) holds: ascending, each once; the second tensor says which are real.

    >>> rows, is_real = unite([torch.tensor([[4, 2], [1, -1]]), torch.tensor([[2], [1]])], num_rows=5)
    >>> rows.tolist(), is_real.tolist()
    ([[2, 4], [1, 0]], [[True, True], [True, False]])
    """
    rows = torch.cat(lists, dim=1)  # (B, n)
    ordered = torch.where(rows == NO_ROW, num_rows, rows).sort(dim=1).values  # (B, n)
    is_new = ordered < num_rows  # (B, n)
    is_new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    columns, is_real = pack(is_new)  # (B, C)
    return ordered.gather(1, columns).masked_fill(~is_real, 0), is_real
