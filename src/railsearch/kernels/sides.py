"""Query parts and item parts of many rows, computed batch by batch, so that hidden layers stay small."""

from collections.abc import Callable

import torch
from torch import Tensor

from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.similarity import ItemParts, QueryParts, Similarity

ROWS_PER_BATCH = 8192


@plain_arithmetic()
def compute_query_parts(similarity: Similarity, queries: Tensor, user_ids: Tensor | None = None) -> QueryParts:
    """Return the query side of all queries."""
    batches = []
    for first in range(0, max(1, len(queries)), ROWS_PER_BATCH):
        rows = slice(first, first + ROWS_PER_BATCH)
        users = None if user_ids is None else user_ids[rows]
        batches.append(similarity.query_parts(queries[rows], user_ids=users))
    components = torch.cat([parts.components for parts in batches])  # (B, Pq, d)
    return QueryParts(components, _joined([parts.gate for parts in batches]), batches[0].model)


@plain_arithmetic()
def compute_item_parts(
    similarity: Similarity, items: Tensor, *, on_rows: Callable[[int], None] | None = None
) -> ItemParts:
    """Return the item side of all items, in the precision of the similarity's weights, or fp32 if it has none.

    Each batch is written to its place immediately, so that there is never a second copy of all items. `on_rows` is
    called with the number of rows of each batch.
    """
    like = next(iter(similarity.parameters()), items.new_empty(0, dtype=torch.float32))
    components = gate = model = None
    for first in range(0, len(items), ROWS_PER_BATCH):
        parts = similarity.item_parts(items[first : first + ROWS_PER_BATCH].to(like))
        if components is None:
            components = parts.components.new_empty(len(items), *parts.components.shape[1:])  # (N, Px, d)
            gate = None if parts.gate is None else parts.gate.new_empty(len(items), parts.gate.shape[1])  # (N, P)
            model = parts.model
        components[first : first + len(parts)] = parts.components
        if gate is not None and parts.gate is not None:
            gate[first : first + len(parts)] = parts.gate
        if on_rows is not None:
            on_rows(len(parts))
    return similarity.item_parts(items.to(like)) if components is None else ItemParts(components, gate, model)


def _joined(gates: list[Tensor | None]) -> Tensor | None:
    present = [gate for gate in gates if gate is not None]
    return torch.cat(present) if present else None
