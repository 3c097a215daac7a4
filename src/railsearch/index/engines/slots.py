"""First stages as inner products with one vector for each item: all of its components, one after the other.

With item components g_1 to g_Px, concatenated, and a query component f:

    (f, f, ..., f) . (g_1, ..., g_Px) = f . (g_1 + ... + g_Px)      the average, up to a factor
    (0, ..., f at j, ..., 0) . (g_1, ..., g_Px) = f . g_j           one component pair
"""

from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.index.engines.contract import Nearest, Table
from railsearch.kernels import RowFilter


def in_every_slot(vectors: Tensor, num_slots: int) -> Tensor:
    """Repeat vectors (B, V, d) for each component: (B, V, Px * d).

    >>> import torch
    >>> in_every_slot(torch.tensor([[[1.0, 2.0]]]), 2).tolist()
    [[[1.0, 2.0, 1.0, 2.0]]]
    """
    return vectors.repeat(1, 1, num_slots)  # (B, V, Px * d)


def in_one_slot(vectors: Tensor, num_slots: int, slot: int) -> Tensor:
    """Put vectors (B, V, d) at one component, with zeros elsewhere: (B, V, Px * d).

    >>> import torch
    >>> in_one_slot(torch.tensor([[[1.0, 2.0]]]), 2, 1).tolist()
    [[[0.0, 0.0, 1.0, 2.0]]]
    """
    placed = vectors.new_zeros(*vectors.shape[:2], num_slots, vectors.shape[2])  # (B, V, Px, d)
    placed[:, :, slot] = vectors
    return placed.flatten(2)  # (B, V, Px * d)


class SlotTable:
    """The table of sums, or of one component, as part of a table of all components."""

    def __init__(self, table: Table, *, num_slots: int, slot: int | None) -> None:
        """Store the table of all components, and the component; None for the sum of all."""
        self._table = table
        self._num_slots = num_slots
        self._slot = slot

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        if self._slot is None:
            placed = in_every_slot(vectors, self._num_slots)  # (B, V, Px * d)
        else:
            placed = in_one_slot(vectors, self._num_slots, self._slot)  # (B, V, Px * d)
        return self._table.best(placed, n, row_filter)

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Raise an error: a collection does not return the dot products of all rows."""
        raise EngineError("a collection has no bounds; check sees_every_row before you ask for them.")

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Raise an error: a collection may miss rows above a threshold."""
        raise EngineError("a collection has no thresholds; check supports_threshold before you ask for them.")

    def to_bytes(self) -> bytes:
        """Return no bytes: the server keeps the collection."""
        return b""

    def close(self) -> None:
        """Do nothing: the table of all components is closed on its own."""
