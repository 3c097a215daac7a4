"""First stages: cheap dot products that choose the items to score (the paper's section 3.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.corpus import Corpus
from railsearch.index.engines import NO_ROW, Engine, Nearest
from railsearch.kernels import RowFilter, Stage, select_best, timed
from railsearch.similarity import QueryParts


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Rows that a first stage chose by component, and bounds for the other rows."""

    rows: Tensor  # (B, P * n), NO_ROW after the last row of a short list
    best_outside: Tensor  # (B,) a bound for all items outside the lists
    bound_rows: Tensor  # (B, M) rows with the best bounds, if the engine sees every row; otherwise none
    bounds: Tensor  # (B, M) their best component scores

    def bounds_without(self, scored: Tensor, is_real: Tensor) -> Tensor:
        """Return bounds (B, n), the greatest of which bounds all items that are not among the scored rows (B, C).

        The rows with the best bounds are more than those that are scored, so that one of them is not.
        """
        if not self.bounds.shape[1] or not scored.shape[1]:
            return torch.cat([self.best_outside[:, None], self.bounds], dim=1)
        ascending = torch.where(is_real, scored, torch.iinfo(torch.int64).max)  # (B, C)
        places = torch.searchsorted(ascending, self.bound_rows).clamp_max(scored.shape[1] - 1)  # (B, M)
        is_scored = ascending.gather(1, places) == self.bound_rows  # (B, M)
        return self.bounds.masked_fill(is_scored, -torch.inf)


@timed(Stage.FIRST_STAGE)
def best_by_average(
    corpus: Corpus, query_parts: QueryParts, n: int, row_filter: RowFilter | None, *, engine: Engine | None = None
) -> Tensor:
    """Return the rows (B, n) with the best average component score: one dot product for each item, for any P."""
    engine = corpus.engine if engine is None else engine
    _check_limit(engine, n)
    vectors = query_parts.components.sum(dim=1, keepdim=True)  # (B, 1, d)
    lists = []
    for stretch in corpus.sum_tables(engine):
        first = stretch.first_row
        own_filter = None if row_filter is None else row_filter.of_rows(first, first + stretch.num_rows)
        lists.append(shifted(stretch.table.best(vectors, n, own_filter), first))
    return best_of(corpus, lists, n).rows[:, 0]


@timed(Stage.FIRST_STAGE)
def best_by_weights(
    corpus: Corpus, query_parts: QueryParts, weights: Tensor, n: int, row_filter: RowFilter | None
) -> Tensor:
    """Return the rows (B, n) with the best weighted sum of component scores, by weights (B, P).

    The sum is linear in the components of an item: one dot product over all of them, in the collection of the engine
    if it keeps one, otherwise in a scan of every item.
    """
    by_pair = weights.view(-1, corpus.similarity.num_query_components, corpus.similarity.num_item_components)
    vectors = torch.einsum("bqx,bqd->bxd", by_pair, query_parts.components).flatten(1)[:, None]  # (B, 1, Px * d)
    if corpus.collection is not None:
        _check_limit(corpus.engine, n)
        return corpus.collection.best(vectors, n, row_filter).rows[:, 0]
    lists = []
    for stretch in corpus.stretches():
        own_filter = (
            None if row_filter is None else row_filter.of_rows(stretch.first_row, stretch.first_row + len(stretch))
        )
        found = corpus.kernel.scan(vectors, stretch.parts.components.flatten(1), n, own_filter)
        lists.append(shifted(found, stretch.first_row))
    return best_of(corpus, lists, n).rows[:, 0]


@timed(Stage.FIRST_STAGE)
def best_per_component(
    corpus: Corpus, query_parts: QueryParts, n: int, row_filter: RowFilter | None, *, max_scored: int
) -> Chosen:
    """Return the n best items of each component pair, and bounds for the others.

    An engine that sees every row leaves this to the kernel, which reads all components in one pass and returns the
    items with the best bounds too: one more than `max_scored`, the most items that will be scored. Another engine is
    asked for n + 1 rows of each pair: no item outside the lists is better than the last one (Theorem 2). If the engine
    cannot return one more, no item outside is better than the n-th. The bounds of an engine that may miss rows prove
    nothing.
    """
    if not corpus.engine.sees_every_row:
        return _best_by_engine(corpus, query_parts, n, row_filter)
    found_in = []
    for stretch in corpus.stretches():
        first, last = stretch.first_row, stretch.first_row + len(stretch)
        own_filter = None if row_filter is None else row_filter.of_rows(first, last)
        found = corpus.kernel.best_by_component(query_parts, stretch.parts, n, max_scored + 1, own_filter)
        found_in.append((first, found))
    nearest = best_of(corpus, [shifted(Nearest(found.rows, found.scores), first) for first, found in found_in], n)
    bounds = torch.cat([found.bounds for _, found in found_in], dim=1)  # (B, M)
    return Chosen(
        rows=nearest.rows.flatten(1),
        best_outside=bounds.new_full((len(bounds),), -torch.inf),
        bound_rows=torch.cat([_counted_from(first, found.bound_rows) for first, found in found_in], dim=1),
        bounds=bounds,
    )


def _best_by_engine(corpus: Corpus, query_parts: QueryParts, n: int, row_filter: RowFilter | None) -> Chosen:
    engine, temperature = corpus.engine, corpus.similarity.temperature
    vectors = query_parts.components / temperature  # (B, Pq, d)
    limit = one_more(engine, n)
    _check_limit(engine, limit)
    lists, best_outside = [], vectors.new_full((len(vectors),), -torch.inf)  # (B,)
    for component in range(corpus.similarity.num_item_components):
        found_in = []
        for stretch in corpus.component_tables(engine, component):
            first = stretch.first_row
            own_filter = None if row_filter is None else row_filter.of_rows(first, first + stretch.num_rows)
            found = stretch.table.best(vectors, limit, own_filter)
            if found.scores.shape[2] < stretch.num_rows:
                best_outside = torch.maximum(best_outside, found.scores[:, :, -1].amax(dim=1))  # (B,)
            found_in.append(shifted(found, first))
        nearest = best_of(corpus, found_in, n + 1)
        if nearest.scores.shape[2] > n:
            best_outside = torch.maximum(best_outside, nearest.scores[:, :, n].amax(dim=1))  # (B,)
        lists.append(nearest.rows[:, :, :n].flatten(1))  # (B, Pq * n)
    rows = torch.cat(lists, dim=1)  # (B, P * n)
    return Chosen(rows, best_outside, bound_rows=rows[:, :0], bounds=vectors.new_empty((len(rows), 0)))


def one_more(engine: Engine, n: int) -> int:
    """Return how many rows to ask for, to know the best omitted row too: n + 1, or n if that is the limit."""
    return n + 1 if engine.max_n is None else max(n, min(n + 1, engine.max_n))


@timed(Stage.FIRST_STAGE)
def reaches(corpus: Corpus, query_parts: QueryParts, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
    """Return for which items (B, N) some component score is at least the query's threshold (B,), by the engine."""
    vectors = query_parts.components / corpus.similarity.temperature  # (B, Pq, d)
    pieces = []
    for stretch in corpus.stretches():
        own_filter = (
            None if row_filter is None else row_filter.of_rows(stretch.first_row, stretch.first_row + len(stretch))
        )
        is_above = torch.zeros(len(vectors), len(stretch), dtype=torch.bool, device=vectors.device)  # (B, n)
        for component in range(corpus.similarity.num_item_components):
            table = stretch.segment.component_table(corpus.engine, component)
            is_above |= table.above(vectors, thresholds, own_filter)
        pieces.append(is_above)
    return torch.cat(pieces, dim=1)  # (B, N)


def _check_limit(engine: Engine, n: int) -> None:
    if engine.max_n is not None and engine.max_n < n:
        raise InvalidInputError(f"{engine.key} returns at most {engine.max_n} rows but {n} are needed; ask for fewer.")


def shifted(found: Nearest, first_row: int) -> Nearest:
    """Return the same rows, counted in the corpus instead of the segment."""
    return Nearest(_counted_from(first_row, found.rows), found.scores)


def _counted_from(first_row: int, rows: Tensor) -> Tensor:
    """Return rows of a segment as rows of the corpus; NO_ROW stays."""
    return rows if first_row == 0 else torch.where(rows == NO_ROW, NO_ROW, rows + first_row)


def best_of(corpus: Corpus, lists: list[Nearest], n: int) -> Nearest:
    """Return the n best rows of several segments; of equal scores the smaller id."""
    if len(lists) == 1:
        return Nearest(lists[0].rows[:, :, :n], lists[0].scores[:, :, :n])
    rows = torch.cat([found.rows for found in lists], dim=2)  # (B, V, n)
    scores = torch.cat([found.scores for found in lists], dim=2)  # (B, V, n)
    num_queries, num_vectors, width = rows.shape
    flat_rows = rows.view(-1, width)  # (B * V, n)
    ties = corpus.tie_order(flat_rows.clamp_min(0))  # (B * V, n)
    best, columns = select_best(scores.view(-1, width), min(n, width), ties)  # (B * V, n)
    shape = (num_queries, num_vectors, min(n, width))
    return Nearest(flat_rows.gather(1, columns).view(shape), best.view(shape))
