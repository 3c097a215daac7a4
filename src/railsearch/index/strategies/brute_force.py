"""Brute force: score every item."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import keep_ascending, keep_best
from railsearch.kernels import RowFilter
from railsearch.similarity import QueryParts

GATHER_SHARE = 4
"""If a filter leaves less than one in this many items, it is cheaper to gather them than to score all."""


@dataclass(frozen=True, slots=True)
class BruteForce:
    """Score every item: exact, and the reference for every other strategy."""

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        certificate = Certificate.start(corpus, query_parts)
        allowed = (
            None if row_filter is None or row_filter.is_allowed is None else row_filter.is_allowed.nonzero().flatten()
        )  # (A,)
        if row_filter is not None and allowed is not None and GATHER_SHARE * len(allowed) < len(corpus):
            scores, rows = _best_among(corpus, query_parts, k, row_filter, allowed)  # (B, K)
        else:
            scores, rows = _best_of_all(corpus, query_parts, k, row_filter)  # (B, K)
        num_scored = len(corpus.ids) if allowed is None else len(allowed)
        return Found(rows, scores, certificate.ceiling, torch.full_like(rows[:, 0], num_scored))


def _best_of_all(
    corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None
) -> tuple[Tensor, Tensor]:
    """Score every row of every segment."""
    all_scores, all_rows = [], []
    for stretch in corpus.stretches():
        first, last = stretch.first_row, stretch.first_row + len(stretch)
        own_filter = None if row_filter is None else row_filter.of_rows(first, last)
        scores, rows = corpus.kernel.top_k(query_parts, stretch.parts, min(k, len(stretch)), own_filter)  # (B, K)
        if len(stretch) == len(corpus):
            return scores, rows  # rows are in the order of ids: ties are settled
        all_scores.append(scores)
        all_rows.append(rows + first)
    return keep_best(corpus, torch.cat(all_scores, dim=1), torch.cat(all_rows, dim=1), k)


def _best_among(
    corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """Gather and score the few rows (A,) that the filter allows."""
    rows = allowed.expand(len(query_parts), len(allowed))  # (B, A)
    scores = corpus.kernel.score_candidates(query_parts, corpus, rows)  # (B, A)
    row_filter.hide_among(scores, allowed)
    return keep_ascending(corpus, scores, rows, k)
