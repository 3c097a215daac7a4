"""Brute force as research code runs it, to measure the gain of precomputing and blocking."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.foundation.results import SearchResult
from railsearch.kernels import Stage, select_best, timed
from railsearch.similarity import MixtureOfLogits, QueryParts
from railsearch.similarity.gate import GateActivation

PAIRS_PER_PIECE = 2**20
"""Query-item pairs that are scored at once: all of ML-20M with a batch of 32. Without a limit, Books would need
20 GiB."""
QUERIES_PER_BATCH = 32


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBruteForce:
    """A search that scores every item from its raw embedding, by the formula of the paper.

    Every search computes the item side again, and each step of the formula is a tensor of all query-item pairs, or of
    as many as memory allows. The answers equal those of `BruteForce`.

    >>> from railsearch.data import make_shape
    >>> shape = make_shape("ml-20m", num_items=50, num_queries=2)
    >>> naive = NaiveBruteForce(shape.similarity, shape.item_embeddings)
    >>> tuple(naive.search(shape.query_components, k=3).ids.shape)
    (2, 3)
    """

    similarity: MixtureOfLogits
    items: Tensor  # (N, D), or (N, Px, d) if components are ready; ids are 0 to N - 1

    @torch.no_grad()
    def search(self, queries: Tensor | QueryParts, k: int) -> SearchResult:
        """Return the k best items of each query."""
        scores, ids = [], []
        for first in range(0, len(queries), QUERIES_PER_BATCH):
            batch = queries[first : first + QUERIES_PER_BATCH]
            query_parts = batch if isinstance(batch, QueryParts) else self.similarity.query_parts(batch)
            rows_per_piece = max(1, PAIRS_PER_PIECE // len(query_parts))
            pieces = [
                self._score(query_parts, self.items[left : left + rows_per_piece])
                for left in range(0, len(self.items), rows_per_piece)
            ]
            best, rows = select_best(torch.cat(pieces, dim=1), k)  # (b, K)
            scores.append(best)
            ids.append(rows)
        num_queries = len(queries)
        return SearchResult(
            ids=torch.cat(ids),  # (B, K)
            scores=torch.cat(scores),  # (B, K)
            ceiling=torch.full((num_queries,), -torch.inf),  # every item is scored
            num_scored=torch.full((num_queries,), len(self.items)),
        )

    @timed(Stage.SCORING)
    def _score(self, query_parts: QueryParts, items: Tensor) -> Tensor:
        similarity = self.similarity
        projected = similarity.item_network(items)  # (N, Px * d)
        components = projected.view(len(items), similarity.num_item_components, similarity.component_dim)
        components = F.normalize(components, dim=-1, eps=similarity.epsilon)  # (N, Px, d)
        products = torch.einsum("bid,njd->bnij", query_parts.components, components)  # (B, N, Pq, Px)
        component_scores = products.flatten(2) / similarity.temperature  # (B, N, P)
        by_query = None if query_parts.gate is None else query_parts.gate[:, None]  # (B, 1, P)
        sides = _present(torch.mul, by_query, self._gate("item", items.flatten(1)))  # (B, N, P)
        logits = _present(torch.add, sides, self._gate("pair", component_scores))  # (B, N, P)
        if logits is None:
            logits = torch.zeros_like(component_scores)  # (B, N, P)
        if similarity.gate.activation is GateActivation.SILU:
            logits = F.silu(logits)
        return (logits.softmax(dim=-1) * component_scores).sum(dim=-1)  # (B, N)

    def _gate(self, name: str, inputs: Tensor) -> Tensor | None:
        """Return the output (..., P) of one of the gate's networks, or None if the gate does not have it."""
        weights = self.similarity.state_dict()
        prefix = f"gate.{name}"
        if f"{prefix}.hidden.weight" not in weights:
            return None
        hidden = F.silu(F.linear(inputs, weights[f"{prefix}.hidden.weight"], weights[f"{prefix}.hidden.bias"]))
        return F.linear(hidden, weights[f"{prefix}.output.weight"], weights.get(f"{prefix}.output.bias"))


def _present(join: Callable[[Tensor, Tensor], Tensor], left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """Return both joined, or the one that is not None."""
    return right if left is None else left if right is None else join(left, right)
