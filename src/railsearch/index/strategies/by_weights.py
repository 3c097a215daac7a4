"""Candidates by a weighted average, with the weights that the gate gives to the best items of a first look."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count
from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.engines import NO_ROW, Flat
from railsearch.index.first_stage import best_by_average, best_by_weights
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import at_least_k, keep_ascending, score_rows
from railsearch.kernels import RowFilter, select_best, unite
from railsearch.similarity import QueryParts

FIRST_LOOK = 32
"""Items that are scored by average at first."""
NUM_BEST = 16
"""The best of them, whose gate weights are added up."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """Score the n items with the best weighted average of component scores: the mixture with its gate held fixed.

    A first look scores 32 items by average. The gate weights of the best 16 of them are the weights of one dot product
    over all components of an item, and the n best items by it are scored.

    If the gate prefers other component pairs for each query, Average misses most of the best items, and this finds them
    among fewer candidates than PerComponent. Items are scanned, unless the engine keeps them in a collection. The
    ceiling for the other items is only the trivial one, as for Average.

    Scores have the same bits in every batch. Weights are computed with torch, so which of two nearly equal candidates
    is the last one to be scored may depend on the batch.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        if self.n < k:
            raise InvalidInputError(
                f"k is {k} but Weighted({self.n}) chooses only {self.n} items; use Weighted({k}) or more."
            )
        certificate = Certificate.start(corpus, query_parts)
        engine = Flat() if corpus.collection is None else corpus.engine
        first_look = best_by_average(corpus, query_parts, FIRST_LOOK, row_filter, engine=engine)  # (B, 32)
        weights = _weights_of_best(corpus, query_parts, first_look)  # (B, P)
        chosen = best_by_weights(corpus, query_parts, weights, self.n, row_filter)  # (B, <= n)
        rows, is_real = at_least_k(corpus, query_parts, [first_look, chosen], k, row_filter)  # (B, C)
        scores = score_rows(corpus, query_parts, rows, is_real)  # (B, C)
        # A list that ends early, or is as long as the corpus, has skipped no item.
        is_complete = (chosen == NO_ROW).any(dim=1) | (len(corpus) <= chosen.shape[1])  # (B,)
        if corpus.collection is not None:
            certificate = certificate.skip_unknown()
        best, best_rows = keep_ascending(corpus, scores, rows, k)  # (B, K)
        return Found(best_rows, best, certificate.skip_unseen(~is_complete).ceiling, is_real.sum(dim=1))


def _weights_of_best(corpus: Corpus, query_parts: QueryParts, chosen: Tensor) -> Tensor:
    """Return the sum (B, P) of the gate weights of the best of the chosen rows (B, n)."""
    rows, is_real = unite([chosen], len(corpus))  # (B, C)
    scores = score_rows(corpus, query_parts, rows, is_real)  # (B, C)
    best, columns = select_best(scores, min(NUM_BEST, scores.shape[1]))  # (B, m)
    items = corpus[rows.gather(1, columns)].to(query_parts.components.dtype)
    weights = corpus.similarity.compare_candidates(query_parts, items).gate_weights  # (B, m, P)
    return weights.masked_fill((best == -torch.inf)[..., None], 0.0).sum(dim=1)
