"""Brute force as research code does it: the measure of what precomputing and blocking are worth."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.scoring import Stage, select_best, timed
from railsearch.similarity import QueryParts, Similarity
from railsearch.types import SearchResult

PAIRS_PER_PIECE = 2**20
"""Queries times items that are scored in one piece: all of ML-20M with a batch of 32. Without a limit, Books would
need 20 GiB."""
QUERIES_PER_BATCH = 32


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBruteForce:
    """Scores every item from its raw embedding: the item side is computed anew by every search, and nothing is kept.

    All pairs are scored at once, or in pieces as large as memory allows. The answers are those of `BruteForce`.

    >>> from railsearch.data import make_shape
    >>> shape = make_shape("ml-20m", num_items=50, num_queries=2)
    >>> naive = NaiveBruteForce(shape.similarity, shape.item_embeddings)
    >>> tuple(naive.search(shape.query_components, k=3).ids.shape)
    (2, 3)
    """

    similarity: Similarity
    items: Tensor  # (N, D), or (N, Px, d) where components are ready; their ids are 0 to N - 1

    @torch.no_grad()
    def search(self, queries: Tensor | QueryParts, k: int) -> SearchResult:
        """Find the k best items of each query."""
        scores, ids = [], []
        for first in range(0, len(queries), QUERIES_PER_BATCH):
            batch = queries[first : first + QUERIES_PER_BATCH]
            query_parts = batch if isinstance(batch, QueryParts) else self.similarity.query_parts(batch)
            best, rows = select_best(self._score_all(query_parts), k)  # (b, K)
            scores.append(best)
            ids.append(rows)
        num_queries = len(queries)
        return SearchResult(
            ids=torch.cat(ids),  # (B, K)
            scores=torch.cat(scores),  # (B, K)
            ceiling=torch.full((num_queries,), -torch.inf),  # nothing was left unscored
            num_scored=torch.full((num_queries,), len(self.items)),
        )

    @timed(Stage.SCORING)
    def _score_all(self, query_parts: QueryParts) -> Tensor:
        rows_per_piece = max(1, PAIRS_PER_PIECE // len(query_parts))
        pieces = [
            self.similarity.score(query_parts, self.similarity.item_parts(self.items[first : first + rows_per_piece]))
            for first in range(0, len(self.items), rows_per_piece)
        ]
        return torch.cat(pieces, dim=1)  # (B, N)
