"""Candidates in rounds: score some, and let the best of them propose the next ones.

Prototypes of strategies, for measurements: they take no filter and need one segment without removed items.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.engines import NO_ROW
from railsearch.index.first_stage import best_by_average
from railsearch.index.strategies import Found
from railsearch.index.strategies.keeping import keep_ascending, score_rows
from railsearch.kernels import RowFilter, pack, select_best, unite
from railsearch.similarity import MixtureOfLogits, QueryParts

Propose = Callable[[Tensor], Tensor]
"""From the best rows (B, m) that were not asked before, NO_ROW for others, to new rows (B, n)."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Score Average(n), then the neighbours of the best `width` found, until they are all known or after `rounds`."""

    n: int
    width: int
    rounds: int
    neighbors: Tensor  # (N, 16) rows

    def __str__(self) -> str:
        return f"Graph({self.n}, {self.width}, {self.rounds})"

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""

        def propose(best: Tensor) -> Tensor:
            near = self.neighbors[best.clamp_min(0)]  # (B, m, 16)
            return near.masked_fill((best == NO_ROW)[..., None], NO_ROW).flatten(1)

        return _search(corpus, query_parts, k, n=self.n, width=self.width, rounds=self.rounds, propose=propose)


@dataclass(frozen=True, eq=False)
class Linear:
    """Score Average(n), then the `step` items that phi, linearised at the best `width` found, ranks first.

    The gradient of phi by the components of an item is a vector over all of them. The gradients of the best found, in
    their order, are averaged in `groups`, and each average is one dot-product query.
    """

    n: int
    width: int
    groups: int
    step: int
    rounds: int
    table: Tensor  # (N, Px * d) item components side by side

    def __str__(self) -> str:
        return f"Linear({self.n}, {self.width}, {self.groups}, {self.step}, {self.rounds})"

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""

        def propose(best: Tensor) -> Tensor:
            slopes = gradients(corpus, query_parts, best)  # (B, m, Px * d)
            means = slopes.unflatten(1, (self.groups, -1)).mean(dim=2)  # (B, groups, Px * d)
            return corpus.kernel.scan(means, self.table, self.step // self.groups, None).rows.flatten(1)

        return _search(
            corpus, query_parts, k, n=self.n, width=self.width, rounds=self.rounds, propose=propose, asks_again=True
        )


def gradients(corpus: Corpus, query_parts: QueryParts, rows: Tensor) -> Tensor:
    """Return the gradient of phi by the components of each query's own rows (B, m), as (B, m, Px * d)."""
    similarity, items = corpus.similarity, corpus[rows]
    assert isinstance(similarity, MixtureOfLogits)
    vectors = query_parts.components / similarity.temperature  # (B, Pq, d)
    with torch.enable_grad():
        scores = torch.einsum("bqd,bmxd->bmqx", vectors, items.components).flatten(2)  # (B, m, P)
        scores = scores.detach().requires_grad_()
        query_gate = None if query_parts.gate is None else query_parts.gate[:, None]  # (B, 1, P)
        weights = similarity.gate(scores, query_gate, items.gate)  # (B, m, P)
        (slopes,) = torch.autograd.grad((weights * scores).sum(), scores)  # (B, m, P)
    slopes = slopes.unflatten(2, (similarity.num_query_components, -1))  # (B, m, Pq, Px)
    return torch.einsum("bmqx,bqd->bmxd", slopes, vectors).flatten(2)  # (B, m, Px * d)


def _search(
    corpus: Corpus,
    query_parts: QueryParts,
    k: int,
    *,
    n: int,
    width: int,
    rounds: int,
    propose: Propose,
    asks_again: bool = False,
) -> Found:
    rows, is_real = unite([best_by_average(corpus, query_parts, n, None)], len(corpus))  # (B, C)
    scores = score_rows(corpus, query_parts, rows, is_real)  # (B, C)
    asked = rows[:, :0]  # (B, A)
    for _ in range(rounds):
        _, columns = select_best(scores, min(width, scores.shape[1]))  # (B, m)
        best = rows.gather(1, columns)  # (B, m)
        if not asks_again:
            fresh = best.masked_fill(among(best, asked), NO_ROW)  # (B, m)
            asked, best = torch.cat([asked, fresh], dim=1), fresh
        new_rows, is_new = unite([propose(best)], len(corpus))  # (B, c)
        is_new &= ~among(new_rows, rows.masked_fill(~is_real, NO_ROW))
        columns, is_new = pack(is_new)  # (B, c)
        if not columns.shape[1]:
            break
        new_rows = new_rows.gather(1, columns)
        scores = torch.cat([scores, score_rows(corpus, query_parts, new_rows, is_new)], dim=1)  # (B, C + c)
        rows, is_real = torch.cat([rows, new_rows], dim=1), torch.cat([is_real, is_new], dim=1)
    order = rows.argsort(dim=1)  # (B, C)
    best_scores, best_rows = keep_ascending(corpus, scores.gather(1, order), rows.gather(1, order), k)  # (B, K)
    certificate = Certificate.start(corpus, query_parts)
    ceiling = certificate.skip_unseen(torch.ones_like(certificate.ceiling, dtype=torch.bool)).ceiling  # (B,)
    return Found(best_rows, best_scores, ceiling, is_real.sum(dim=1))


def among(rows: Tensor, known: Tensor) -> Tensor:
    """Return which of the rows (B, m) are among the known ones (B, A)."""
    if not known.shape[1]:
        return torch.zeros_like(rows, dtype=torch.bool)
    ascending = known.sort(dim=1).values  # (B, A)
    places = torch.searchsorted(ascending, rows.contiguous()).clamp_max(known.shape[1] - 1)  # (B, m)
    return ascending.gather(1, places) == rows


def nearest_items(corpus: Corpus, count: int) -> Tensor:
    """Return the rows (N, count) of the items with the best dot product over all components, without the item."""
    table = side_by_side(corpus)  # (N, Px * d)
    lists = []
    for first in range(0, len(table), 512):
        own = torch.arange(first, min(first + 512, len(table)))  # (b,)
        found = corpus.kernel.scan(table[own][:, None], table, count + 1, None).rows[:, 0]  # (b, count + 1)
        is_other = found != own[:, None]
        is_other[is_other.all(dim=1), -1] = False  # a copy of the item was found instead of itself
        lists.append(found[is_other].view(len(own), count))
    return torch.cat(lists)


def side_by_side(corpus: Corpus) -> Tensor:
    """Return the components of every item as one vector, (N, Px * d)."""
    return torch.cat([piece.components.float().flatten(1) for piece in corpus.pieces]).contiguous()
