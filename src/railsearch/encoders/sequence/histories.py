"""Histories of different lengths, concatenated without padding."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """The E events of B users, each user's oldest event first.

    Every position is a query for the next item. `next_times` holds the time of that query: the time of the user's next
    event, or at the end of a history the time of the request.
    """

    items: Tensor  # (E,) int64, rows of the item table
    times: Tensor  # (E,) int64, seconds
    next_times: Tensor  # (E,) int64, seconds
    lengths: Tensor  # (B,) int64, each at least 1; sums to E

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
                f"history {user} has length {int(self.lengths[user])} but needs at least 1 event; omit this history."
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def last_positions(self) -> Tensor:
        """Row of each user's last event (B,)."""
        return self.lengths.cumsum(dim=0) - 1

    def to(self, device: torch.device) -> "Histories":
        """Return the same histories on another device."""
        return Histories(
            self.items.to(device), self.times.to(device), self.next_times.to(device), self.lengths.to(device)
        )

    def split(self, size: int) -> "list[Histories]":
        """Return batches of `size` histories; the last may be smaller."""
        lengths = torch.split(self.lengths, size)
        counts = [int(own.sum()) for own in lengths]
        items, times, next_times = (torch.split(each, counts) for each in (self.items, self.times, self.next_times))
        return [Histories(*own) for own in zip(items, times, next_times, lengths, strict=True)]

    def check(self, *, num_items: int, max_length: int) -> None:
        """Check that an encoder with this many items and positions can take these histories."""
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
