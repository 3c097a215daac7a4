"""The two sides of a similarity, each computed once, and the result of joining them."""

from dataclasses import dataclass

import torch
from torch import Tensor

IN_TRAINING = "in training"
"""The `model` of parts that were computed in training mode, when weights change and dropout is on."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryParts:
    """The query side: everything that scoring needs from a batch of queries."""

    components: Tensor  # (B, Pq, d)
    gate: Tensor | None  # (B, P), or as wide as the similarity wants
    model: str | None = None
    """Fingerprint of the model that computed them, if it is known; an index refuses parts of another model."""

    def __len__(self) -> int:
        return self.components.shape[0]

    def __repr__(self) -> str:
        return f"QueryParts({len(self):,} queries, components {tuple(self.components.shape)})"

    def __getitem__(self, rows: slice | Tensor) -> "QueryParts":
        gate = None if self.gate is None else _take(self.gate, rows)
        return QueryParts(_take(self.components, rows), gate, self.model)


@dataclass(frozen=True, slots=True, eq=False)
class ItemParts:
    """The item side: everything that scoring needs from items; computed once, when they are indexed.

    Indexing with a (B, C) tensor of rows returns the C candidates of each of B queries:
    components (B, C, Px, d) and gate (B, C, P).
    """

    components: Tensor  # (N, Px, d)
    gate: Tensor | None  # (N, P), or as wide as the similarity wants
    model: str | None = None
    """Fingerprint of the model that computed them, if it is known; an index refuses parts of another model."""

    def __len__(self) -> int:
        return self.components.shape[0]

    def __repr__(self) -> str:
        return f"ItemParts({len(self):,} items, components {tuple(self.components.shape)})"

    def __getitem__(self, rows: slice | Tensor) -> "ItemParts":
        gate = None if self.gate is None else _take(self.gate, rows)
        return ItemParts(_take(self.components, rows), gate, self.model)

    def to(self, dtype: torch.dtype) -> "ItemParts":
        """Return the same parts in another precision."""
        return ItemParts(self.components.to(dtype), None if self.gate is None else self.gate.to(dtype), self.model)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Scores of query-item pairs and their mixture: scores = (gate_weights * component_scores).sum(-1)."""

    scores: Tensor  # (B, N)
    component_scores: Tensor  # (B, N, P)
    gate_weights: Tensor  # (B, N, P)


def _take(part: Tensor, rows: slice | Tensor) -> Tensor:
    if isinstance(rows, slice):
        return part[rows]
    # Three times as fast as part[rows], on which the scoring of candidates would spend much of its time.
    return part.index_select(0, rows.flatten()).view(*rows.shape, *part.shape[1:])


def all_products(query_components: Tensor, item_components: Tensor) -> Tensor:
    """Return the dot products (B, Pq, N, Px) of all component pairs of every query and item."""
    num_queries, num_query_components, dim = query_components.shape
    num_items, num_item_components, _ = item_components.shape
    products = query_components.reshape(-1, dim) @ item_components.reshape(-1, dim).T  # (B * Pq, N * Px)
    return products.view(num_queries, num_query_components, num_items, num_item_components)


def own_products(query_components: Tensor, candidate_components: Tensor) -> Tensor:
    """Return the dot products (B, Pq, C, Px) of all component pairs of each query and its own candidates."""
    num_queries, num_candidates, num_item_components, _ = candidate_components.shape
    products = torch.bmm(query_components, candidate_components.flatten(1, 2).transpose(1, 2))  # (B, Pq, C * Px)
    return products.view(num_queries, query_components.shape[1], num_candidates, num_item_components)


def by_pair(products: Tensor) -> Tensor:
    """Return products (B, Pq, N, Px) as component scores (B, N, P) of each query-item pair; pair p = i * Px + j."""
    return products.transpose(1, 2).flatten(2)


def all_pairs(query_components: Tensor, item_components: Tensor) -> Tensor:
    """Return the dot products (B, N, P) of all component pairs of every query and item."""
    return by_pair(all_products(query_components, item_components))


def best_pairs(query_components: Tensor, item_components: Tensor) -> Tensor:
    """Return the best dot product (B, N) of any component pair, for every query and item."""
    num_queries, num_query_components, dim = query_components.shape
    num_items, num_item_components, _ = item_components.shape
    products = query_components.reshape(-1, dim) @ item_components.reshape(-1, dim).T  # (B * Pq, N * Px)
    by_query = products.view(num_queries, num_query_components, num_items * num_item_components)  # (B, Pq, N * Px)
    by_item_component = by_query.amax(dim=1)  # (B, N * Px)
    return by_item_component.view(num_queries, num_items, num_item_components).amax(dim=2)  # (B, N)


def own_pairs(query_components: Tensor, candidate_components: Tensor) -> Tensor:
    """Return the dot products (B, C, P) of all component pairs of each query and its own candidates."""
    return by_pair(own_products(query_components, candidate_components))
