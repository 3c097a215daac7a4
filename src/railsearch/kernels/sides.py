"""Query parts and item parts of many rows, computed batch by batch, so that hidden layers stay small.

On a CPU they are computed by the native kernels if those know the similarity: a row then has the same bits in every
batch, which torch's matrix products do not promise.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from railsearch.kernels import native
from railsearch.kernels.arithmetic import plain_arithmetic
from railsearch.kernels.choose import uses_native
from railsearch.similarity import ItemParts, QueryParts, Similarity

ROWS_PER_BATCH = 8192


@plain_arithmetic()
def compute_query_parts(similarity: Similarity, queries: Tensor, user_ids: Tensor | None = None) -> QueryParts:
    """Return the query side of all queries."""
    batches = []
    for first in range(0, max(1, len(queries)), ROWS_PER_BATCH):
        rows = slice(first, first + ROWS_PER_BATCH)
        users = None if user_ids is None else user_ids[rows]
        batches.append(_query_parts(similarity, queries[rows], users))
    if len(batches) == 1:
        return batches[0]
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
        parts = _item_parts(similarity, items[first : first + ROWS_PER_BATCH].to(like))
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


def has_stable_sides(similarity: Similarity, inputs: Tensor) -> bool:
    """Return whether the parts of a query or item have the same bits in every batch."""
    return uses_native(inputs.device) and native.can_project(similarity, inputs)


def _query_parts(similarity: Similarity, queries: Tensor, user_ids: Tensor | None) -> QueryParts:
    if uses_native(queries.device) and native.can_project(similarity, queries):
        return native.query_parts(similarity, queries, user_ids)
    return similarity.query_parts(queries, user_ids=user_ids)


def _item_parts(similarity: Similarity, items: Tensor) -> ItemParts:
    if uses_native(items.device) and native.can_project(similarity, items):
        return native.item_parts(similarity, items)
    return similarity.item_parts(items)


def _joined(gates: list[Tensor | None]) -> Tensor | None:
    present = [gate for gate in gates if gate is not None]
    return torch.cat(present) if present else None
