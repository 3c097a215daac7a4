"""Groups of histories of similar length, so that attention does little work on padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SCORES_PER_GROUP = 2**20
"""Largest number of attention scores in a group, so that they stay in the cache."""
SPARE_SCORES_PER_HISTORY = 2**13
"""Largest number of scores that padding may cost a history; beyond this, one more group costs less."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The rows of E events in two layouts: packed, one history after the other, and padded, in groups of shape (b, n).

    Histories start at the left of a group and are padded on the right. Under a causal mask no event sees what is to its
    right, so padding needs no mask. It repeats the last event of the history.
    """

    positions: Tensor  # (E,) position of each event in its history; the oldest is at 0
    shapes: Sequence[tuple[int, int]]  # (b, n) of each group
    events: Tensor  # (T,) event in each padded row, group after group
    places: Tensor  # (E,) padded row of each event

    def unpack(self, packed: Tensor) -> Tensor:
        """Return packed rows (E, W) in the padded layout (T, W); results of padding rows must not be used."""
        unpacked: Tensor = _Unpack.apply(packed, self.events, self.places)  # type: ignore[no-untyped-call]
        return unpacked

    def pack(self, padded: Tensor) -> Tensor:
        """Return padded rows (T, W) in the packed layout (E, W)."""
        return padded.index_select(0, self.places)

    def split(self, padded: Tensor) -> list[Tensor]:
        """Return padded rows (T, ...) as one tensor (b, n, ...) for each group."""
        parts = torch.split(padded, [count * length for count, length in self.shapes])
        return [part.view(*shape, *padded.shape[1:]) for part, shape in zip(parts, self.shapes, strict=True)]


def group_histories(lengths: Tensor, *, num_heads: int) -> Packing:
    """Sort histories by length and cut them into groups; attention in one has b * num_heads * n * n scores."""
    starts = lengths.cumsum(dim=0) - lengths  # (B,)
    positions = torch.arange(int(lengths.sum()), device=lengths.device) - starts.repeat_interleave(lengths)  # (E,)
    ordered_lengths, order = lengths.sort(descending=True, stable=True)  # (B,)
    shapes = _cut(ordered_lengths.tolist(), num_heads)
    widths = torch.tensor([n for count, n in shapes for _ in range(count)], device=lengths.device)  # (B,) in this order
    ordered_places = widths.cumsum(dim=0) - widths  # (B,)
    columns = torch.arange(int(widths.sum()), device=lengths.device) - ordered_places.repeat_interleave(widths)  # (T,)
    last_columns = (ordered_lengths - 1).repeat_interleave(widths)  # (T,)
    events = starts[order].repeat_interleave(widths) + torch.minimum(columns, last_columns)  # (T,)
    first_places = torch.empty_like(starts).index_copy_(0, order, ordered_places)  # (B,)
    return Packing(positions, shapes, events, first_places.repeat_interleave(lengths) + positions)


def _cut(lengths: Sequence[int], num_heads: int) -> list[tuple[int, int]]:
    """Cut lengths, longest first, into groups (count, longest) with little padding."""
    shapes = []
    first = 0
    for place in range(1, len(lengths) + 1):
        count, longest = place - first, lengths[first]
        is_full = place == len(lengths) or (count + 1) * num_heads * longest**2 > SCORES_PER_GROUP
        if is_full or num_heads * (longest**2 - lengths[place] ** 2) > SPARE_SCORES_PER_HISTORY:
            shapes.append((count, longest))
            first = place
    return shapes


class _Unpack(torch.autograd.Function):
    """A gather whose gradient is a gather too: each event has one padded row, and padding has no gradient."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, events: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return packed.index_select(0, events)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradient.index_select(0, places), None, None
