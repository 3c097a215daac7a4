"""Groups histories of similar length for attention, so that hardly any work is spent on padding."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SCORES_PER_GROUP = 2**20
"""Attention scores one group may hold, so that they stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where events stand: packed, one history after the other (E,), and in padded groups (b, n).

    In a group histories begin at the left and are padded on the right. Under a causal mask no event sees what is to
    its right, so padding needs no mask of its own; it may hold anything, and repeats the history's last event.
    """

    positions: Tensor  # (E,) of each event in its history, the oldest at 0
    groups: Sequence[Tensor]  # each (b, n): which packed event stands there
    places: Tensor  # (E,) where each event stands in all groups, flattened, one group after the other

    def unpack(self, packed: Tensor) -> list[Tensor]:
        """Lay packed rows (E, ...) out in groups (b, n, ...)."""
        return [packed[group] for group in self.groups]

    def pack(self, padded: Sequence[Tensor]) -> Tensor:
        """Take the rows of all events (E, ...) from groups (b, n, ...), without the padding."""
        return torch.cat([group.flatten(0, 1) for group in padded])[self.places]  # (E, ...)


def group_histories(lengths: Tensor, *, num_heads: int) -> Packing:
    """Sort histories by length and cut them into groups; attention in one has b * num_heads * n * n scores."""
    starts = lengths.cumsum(dim=0) - lengths  # (B,)
    positions = torch.arange(int(lengths.sum()), device=lengths.device) - starts.repeat_interleave(lengths)  # (E,)
    ordered_lengths, order = lengths.sort(descending=True, stable=True)  # (B,)
    first_places = torch.empty_like(lengths)  # (B,) of each history in all groups
    groups = []
    offset = 0
    for first, count, width in _cut(ordered_lengths.tolist(), num_heads):
        users = order[first : first + count]  # (b,)
        columns = torch.arange(width, device=lengths.device)  # (n,)
        groups.append(starts[users, None] + torch.minimum(columns, lengths[users, None] - 1))  # (b, n)
        first_places[users] = offset + width * torch.arange(count, device=lengths.device)  # (b,)
        offset += count * width
    return Packing(positions, groups, first_places.repeat_interleave(lengths) + positions)


def _cut(lengths: Sequence[int], num_heads: int) -> list[tuple[int, int, int]]:
    """Cut lengths, the longest first, into (first, count, longest) so that none is much shorter than its longest."""
    groups = []
    first = 0
    for place in range(1, len(lengths) + 1):
        longest, count = lengths[first], place - first
        is_full = (count + 1) * num_heads * longest**2 > SCORES_PER_GROUP
        if place == len(lengths) or is_full or lengths[place] < longest - longest // 8:
            groups.append((first, count, longest))
            first = place
    return groups
