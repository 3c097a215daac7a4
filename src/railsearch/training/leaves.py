"""Leaves of the graph at the border between the two sides and the loss, which runs block by block."""

import torch
from torch import Tensor

from railsearch.similarity import ItemParts


class ItemGradients:
    """Gradients of item parts, summed over blocks that each use a few rows."""

    def __init__(self, item_parts: ItemParts) -> None:
        self.components = torch.zeros_like(item_parts.components)  # (U, Px, d)
        self.gate = None if item_parts.gate is None else torch.zeros_like(item_parts.gate)  # (U, P)

    def add(self, rows: Tensor, leaves: ItemParts) -> None:
        """Add the gradients of these rows."""
        for total, leaf in ((self.components, leaves.components), (self.gate, leaves.gate)):
            if total is not None and leaf is not None and leaf.grad is not None:
                total.index_add_(0, rows.flatten(), leaf.grad.flatten(0, rows.ndim - 1))


def as_leaf(part: Tensor) -> Tensor:
    """Return the values as a leaf of the graph that collects a gradient."""
    return part.detach().requires_grad_()


def as_optional_leaf(part: Tensor | None) -> Tensor | None:
    """Return the same for a part that a similarity may lack."""
    return None if part is None else as_leaf(part)
