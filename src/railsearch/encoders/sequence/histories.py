"""Histories of different lengths, one after the other and without padding."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError


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

    def __post_init__(self) -> None:
        for name in ("items", "times", "next_times", "lengths"):
            values: Tensor = getattr(self, name)
            if values.ndim != 1 or values.dtype != torch.int64:
                raise InvalidInputError(
                    f"{name} is {values.dtype} of shape {tuple(values.shape)}; give one row of torch.int64."
                )
        for name in ("times", "next_times"):
            if len(getattr(self, name)) != len(self.items):
                raise InvalidInputError(
                    f"{name} has {len(getattr(self, name))} values but there are {len(self.items)} events; "
                    f"give one for each event."
                )
        total = int(self.lengths.sum())
        if total != len(self.items):
            raise InvalidInputError(
                f"lengths sum to {total} but there are {len(self.items)} events; give each event to one history."
            )
        if len(self.lengths) and int(self.lengths.min()) < 1:
            user = int(self.lengths.argmin())
            raise InvalidInputError(
                f"history {user} has length {int(self.lengths[user])} but at least 1 event is needed; leave it out."
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def last_positions(self) -> Tensor:
        """Where each user's last event stands among all (B,)."""
        return self.lengths.cumsum(dim=0) - 1

    def to(self, device: torch.device) -> "Histories":
        """Give the same histories on another device."""
        return Histories(
            self.items.to(device), self.times.to(device), self.next_times.to(device), self.lengths.to(device)
        )

    def split(self, size: int) -> "list[Histories]":
        """Cut into batches of so many histories."""
        lengths = torch.split(self.lengths, size)
        counts = [int(own.sum()) for own in lengths]
        items, times, next_times = (torch.split(each, counts) for each in (self.items, self.times, self.next_times))
        return [Histories(*own) for own in zip(items, times, next_times, lengths, strict=True)]

    def check(self, *, num_items: int, max_length: int) -> None:
        """Refuse what an encoder of so many items and positions cannot take."""
        if len(self.lengths) == 0:
            raise InvalidInputError("there are 0 histories; give at least 1.")
        if int(self.lengths.max()) > max_length:
            user = int(self.lengths.argmax())
            raise InvalidInputError(
                f"history {user} has {int(self.lengths[user])} events but max_length is {max_length}; "
                f"keep its last {max_length}."
            )
        check_item_rows(self.items, num_items=num_items, name="items")


def check_item_rows(rows: Tensor, *, num_items: int, name: str) -> None:
    """Check that every value is a row of the item table."""
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise InvalidInputError(f"{name} holds {rows.dtype} values; give rows of the item table, as integers.")
    if rows.numel() == 0:
        return
    lowest, highest = (int(value) for value in torch.aminmax(rows))
    if lowest < 0 or highest >= num_items:
        raise InvalidInputError(
            f"{name} holds row {lowest if lowest < 0 else highest} but the item table has {num_items} rows; "
            f"give rows from 0 to {num_items - 1}."
        )
