"""Splits of interactions into training, validation and test, with a protocol that is printed with every figure."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.data.interactions.interactions import Interactions
from railsearch.foundation.errors import InvalidInputError


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Held-out items, one for each of some users."""

    users: Tensor  # (n,)
    items: Tensor  # (n,) the item to be found
    history_ends: Tensor  # (n,) end of the visible history, as an index into all events

    def __repr__(self) -> str:
        return f"HeldOut({len(self.items):,} items)"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Events to train on, and items held out for validation and for the test."""

    interactions: Interactions
    train_ends: Tensor  # (U,) end of each user's training events, as an index into all events
    validation: HeldOut | None
    test: HeldOut
    protocol: str
    train_starts: Tensor | None = None  # (U,) first training event that is a target; by default, the second one

    def __repr__(self) -> str:
        return f"Split({self.num_train_events:,} training events; {self.protocol})"

    @property
    def num_train_events(self) -> int:
        """Number of training events."""
        return int((self.train_ends - self.interactions.offsets[:-1]).sum())

    @property
    def first_targets(self) -> Tensor:
        """Row (U,) of the first event of each user that is predicted in training: one with an event before it."""
        second = self.interactions.offsets[:-1] + 1  # (U,)
        return second if self.train_starts is None else torch.maximum(second, self.train_starts)

    @property
    def num_target_events(self) -> int:
        """Number of training events that are predicted in training."""
        return int((self.train_ends - self.first_targets).clamp(min=0).sum())

    @property
    def train_rows(self) -> Tensor:
        """Rows (E,) of the training events among all events, ascending."""
        events = self.interactions
        return (torch.arange(len(events)) < self.train_ends[events.users]).nonzero().flatten()

    def count_items(self) -> Tensor:
        """Return the number of training events of each item (N,)."""
        return torch.bincount(self.interactions.items[self.train_rows], minlength=self.interactions.num_items)


def leave_last_out(interactions: Interactions, *, has_validation: bool = True) -> Split:
    """Hold out each user's last item for the test, and the one before it for validation.

    Validation picks the epoch; the test is read once. Without validation this is the split of the paper, whose figures
    are those of the best epoch on the test items. All events of users with too few events are used for training, and
    these users do not count in any figure.

    >>> import polars as pl
    >>> table = pl.DataFrame({"user": [1, 1, 1, 2], "item": [5, 6, 7, 5], "timestamp": [1, 2, 3, 1]})
    >>> split = leave_last_out(Interactions.from_frame(table))
    >>> split.test.users.tolist(), split.test.items.tolist(), split.validation.items.tolist(), split.num_train_events
    ([0], [2], [1], 2)
    """
    offsets = interactions.offsets  # (U + 1,)
    starts, ends = offsets[:-1], offsets[1:]  # (U,)
    num_held_out = 2 if has_validation else 1
    users = (ends - starts > num_held_out).nonzero().flatten()  # (n,)
    if not len(users):
        raise InvalidInputError(
            f"no user has more than {num_held_out} events, so no item can be held out; give longer histories."
        )
    train_ends = ends.clone()  # (U,)
    train_ends[users] -= num_held_out
    last = ends[users] - 1  # (n,)
    test = HeldOut(users, interactions.items[last], last)
    validation = HeldOut(users, interactions.items[last - 1], last - 1) if has_validation else None
    num_short = interactions.num_users - len(users)
    held_out = "last item for test, the one before for validation" if has_validation else "last item for test"
    ranking = f"full ranking over {interactions.num_items:,} items, those in the history excluded"
    too_short = f" ({num_short:,} with too few events are not counted)" if num_short else ""
    protocol = f"chronological, {held_out}; {ranking}; {len(users):,} users{too_short}"
    return Split(interactions, train_ends, validation, test, protocol)
