"""Histories of different lengths, one after the other and without padding."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """Events of several users, each user's oldest first; E events in all, B users.

    A position asks for the item that comes next, at a moment that is known when it is asked: `next_times` holds it,
    the time of the user's next event, and at the end of a history the time of the request.
    """

    items: Tensor  # (E,) int64, rows of the item table
    times: Tensor  # (E,) int64, seconds
    next_times: Tensor  # (E,) int64, seconds
    lengths: Tensor  # (B,) int64, each at least 1; they sum to E

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def last_positions(self) -> Tensor:
        """Where each user's last event stands among all (B,)."""
        return self.lengths.cumsum(dim=0) - 1
