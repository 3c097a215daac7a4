"""Who asks for recommendations, with which history: from what users bring to what a model takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch
from torch import Tensor

from railsearch.data import Interactions
from railsearch.encoders import Histories
from railsearch.errors import InvalidInputError
from railsearch.inputs import as_choice
from railsearch.similarity import NO_USER

if TYPE_CHECKING:
    from polars import Series


class Table(Protocol):
    """Any DataFrame that speaks Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give the table's content."""
        ...


HistoriesLike: TypeAlias = Sequence[Sequence[object]] | Mapping[object, Sequence[object]] | Interactions | Table


class UnknownItems(StrEnum):
    """What to do with an item that a model does not know."""

    REFUSE = "refuse"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Histories that ask for what comes next, each with the name that its answer gets."""

    names: "Series"  # (B,)
    items: tuple[Tensor, ...]  # B times (n,) rows of items, oldest first
    times: tuple[Tensor, ...]  # B times (n,) seconds
    users: Tensor  # (B,) rows of the model's own users; negative where it does not know them

    def __len__(self) -> int:
        return len(self.items)

    @classmethod
    def gather(
        cls,
        users: Iterable[object] | None,
        histories: HistoriesLike | None,
        *,
        item_ids: "Series",
        user_ids: "Series | None",
        interactions: Interactions | None,
        unknown_items: UnknownItems | str,
    ) -> "Requests":
        """Check what was brought, and look its items and users up.

        Args:
            users: users of `interactions`; these or `histories` must be given.
            histories: lists of item ids, a mapping to such lists, or a table of events.
            item_ids: the model's items, in the order of their rows.
            user_ids: users that the model has weights for, in the order of their rows.
            interactions: where the users' histories are.
            unknown_items: what to do with items that are not the model's.
        """
        ignores = as_choice(UnknownItems, unknown_items, name="unknown_items") is UnknownItems.IGNORE
        if (users is None) == (histories is None):
            raise InvalidInputError("give either users or histories, not both and not neither.")
        if users is not None:
            if interactions is None:
                raise InvalidInputError(
                    "no histories of users are at hand (a model folder holds none); give histories=..., or "
                    "Recommender.load(path, interactions=...)."
                )
            names, items, times = _of_users(users, interactions)
        elif isinstance(histories, Interactions) or hasattr(histories, "__arrow_c_stream__"):
            table = histories if isinstance(histories, Interactions) else Interactions.from_frame(histories)
            names, items, times = _of_users(table.user_ids, table)
        else:
            names, items, times = _of_lists(histories)
        return _look_up(names, items, times, item_ids, user_ids, ignores=ignores)

    def batches(self, size: int) -> "Iterable[Requests]":
        """Cut into so many requests at a time."""
        for first in range(0, len(self), size):
            rows = slice(first, first + size)
            yield Requests(self.names[rows], self.items[rows], self.times[rows], self.users[rows])

    def to_histories(self, *, max_length: int, at: int | None) -> Histories:
        """The last events of each, asked for at that time, or at the time of the last event."""
        items, times = ([each[-max_length:] for each in whole] for whole in (self.items, self.times))
        next_times = [torch.cat([own[1:], own[-1:] if at is None else own.new_tensor([at])]) for own in times]
        return Histories(
            items=torch.cat(items),
            times=torch.cat(times),
            next_times=torch.cat(next_times),
            lengths=torch.tensor([len(own) for own in items]),
        )


_Found: TypeAlias = "tuple[Series, list[Series], list[Tensor]]"


def _of_users(users: Iterable[object], interactions: Interactions) -> _Found:
    """Histories of users by their ids."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    names = _as_series(users, "users")
    rows = find_rows(names, interactions.user_ids)  # (B,)
    if bool((rows < 0).any()):
        place = int((rows < 0).nonzero()[0])
        raise InvalidInputError(
            f"users[{place}] is {names[place]!r}, whose history is not known; give it as histories=..."
        )
    offsets = interactions.offsets
    spans = [(int(offsets[row]), int(offsets[row + 1])) for row in rows.tolist()]
    ids = interactions.item_ids
    items = [ids.gather(pl.Series(interactions.items[first:last].numpy())) for first, last in spans]
    return names, items, [interactions.timestamps[first:last] for first, last in spans]


def _of_lists(histories: object) -> _Found:
    """Histories as lists of item ids, whose events have no times."""
    import polars as pl  # noqa: PLC0415

    if isinstance(histories, Mapping):
        names, lists = _as_series(list(histories), "histories"), list(histories.values())
    elif isinstance(histories, Sequence) and not isinstance(histories, (str, bytes)):
        names, lists = pl.Series("user", range(len(histories)), dtype=pl.Int64), list(histories)
    else:
        raise InvalidInputError(
            f"histories is a {type(histories).__name__}; give lists of item ids, a mapping to such lists, or a table."
        )
    items = [_as_series(own, f"histories[{name!r}]") for name, own in zip(names, lists, strict=True)]
    return names, items, [torch.zeros(len(own), dtype=torch.int64) for own in items]


def _look_up(
    names: "Series",
    items: "list[Series]",
    times: list[Tensor],
    item_ids: "Series",
    user_ids: "Series | None",
    *,
    ignores: bool,
) -> Requests:
    """Rows of items and users; a history that is empty, or empty without unknown items, is refused."""
    if not len(names):
        raise InvalidInputError("there is nobody to recommend to; give at least one user or history.")
    rows, kept_times = [], []
    for name, own, own_times in zip(names, items, times, strict=True):
        found = find_rows(own, item_ids)  # (n,)
        is_known = found >= 0  # (n,)
        if not ignores and not bool(is_known.all()):
            place = int((~is_known).nonzero()[0])
            raise InvalidInputError(
                f"the history of {name!r} has item {own[place]!r}, which the model does not know; leave it out, or "
                'pass unknown_items="ignore".'
            )
        if not bool(is_known.any()):
            raise InvalidInputError(
                f"the history of {name!r} has no {'known item' if len(own) else 'events'}; there is nothing to "
                "recommend from: leave it out, or recommend what is popular."
            )
        rows.append(found[is_known])
        kept_times.append(own_times[is_known])
    users = torch.full((len(names),), NO_USER) if user_ids is None else find_rows(names, user_ids)  # (B,)
    return Requests(names, tuple(rows), tuple(kept_times), users)


def find_rows(values: "Series", ids: "Series") -> Tensor:
    """The row of each value among ids, which are sorted and all different; -1 where there is none."""
    import polars as pl  # noqa: PLC0415

    if not len(values):
        return torch.empty(0, dtype=torch.int64)
    try:
        values = values.cast(ids.dtype)
    except pl.exceptions.PolarsError:
        return torch.full((len(values),), -1)
    rows = ids.search_sorted(values).cast(pl.Int64).clip(0, len(ids) - 1)
    is_there = (ids.gather(rows) == values).fill_null(value=False)
    return torch.from_numpy(rows.set(~is_there, -1).to_numpy(writable=True))


def _as_series(values: object, name: str) -> "Series":
    import polars as pl  # noqa: PLC0415

    if isinstance(values, pl.Series):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{name} is {values!r}; give a list of ids.")
    try:
        return pl.Series(name, list(values))
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(f"{name} does not hold ids of one type ({error}).") from error
