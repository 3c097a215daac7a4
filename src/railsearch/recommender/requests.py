"""Requests for recommendations: users and histories in any form, turned into the histories that a model takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, compress, groupby, islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.data import Interactions
from railsearch.encoders import Histories
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrowTable, as_choice
from railsearch.similarity import NO_USER

if TYPE_CHECKING:
    from polars import Series


HistoriesLike = TypeAliasType(
    "HistoriesLike", Sequence[Sequence[object]] | Mapping[object, Sequence[object]] | Interactions | ArrowTable
)


class UnknownItems(StrEnum):
    """Ways to treat an item that the model does not know."""

    REFUSE = "refuse"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Histories to recommend for, each with the name of its user."""

    names: "Series"  # (B,)
    items: tuple[Tensor, ...]  # B times (n,) rows of items, oldest first
    times: tuple[Tensor, ...]  # B times (n,) seconds
    users: Tensor  # (B,) rows of the model's own users; negative for unknown users
    at: int | None
    """The time of all requests in seconds; None for the time of the last event of each."""
    are_named: bool
    """True if names are those that the caller gave, and not positions in a list."""

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
        at: int | None,
        remedy: str | None,
    ) -> "Requests":
        """Check users or histories, and look up their items and users.

        Args:
            users: users of `interactions`; give either these or `histories`.
            histories: lists of item ids, a mapping to such lists, or a table of events.
            item_ids: the items of the model, in the order of their rows.
            user_ids: users that the model has weights for, in the order of their rows.
            interactions: the histories of `users`.
            unknown_items: how to treat items that the model does not know.
            at: the time of the requests.
            remedy: advice in the error for a user or a history without known items; None accepts both, as empty
                histories.
        """
        ignores = as_choice(UnknownItems, unknown_items, name="unknown_items") is UnknownItems.IGNORE
        if (users is None) == (histories is None):
            raise InvalidInputError("give exactly one of users and histories.")
        if users is not None:
            if interactions is None:
                raise InvalidInputError(
                    "no histories of users are available (a model folder holds none); pass histories=..., or load the "
                    "model with Recommender.load(path, interactions=...)."
                )
            asked = _of_users(users, interactions, remedy=remedy)
        elif isinstance(histories, (Interactions, ArrowTable)):
            table = histories if isinstance(histories, Interactions) else Interactions.from_frame(histories)
            asked = _of_users(table.user_ids, table, remedy=remedy)
        else:
            asked = _of_lists(histories)
        if at is not None:
            _check_time(at, has_times=asked.has_times)
        items, times = _known_events(asked, item_ids, ignores=ignores, remedy=remedy)
        rows = torch.full((len(items),), NO_USER)  # (B,)
        if user_ids is not None and asked.are_named:
            rows = find_rows(asked.names, user_ids)  # (B,)
        return Requests(asked.names, items, times, rows, at, asked.are_named)

    @property
    def is_cold(self) -> Tensor:
        """Whether each request has no item to recommend from (B,)."""
        return torch.tensor([not len(items) for items in self.items])

    def batches(self, size: int) -> "Iterable[Requests]":
        """Yield the requests in batches of at most `size`."""
        for first in range(0, len(self), size):
            rows = slice(first, first + size)
            own = (self.names[rows], self.items[rows], self.times[rows], self.users[rows])
            yield Requests(*own, self.at, self.are_named)

    def where(self, is_kept: Tensor) -> "Requests":
        """Return the requests for which a mask (B,) is true."""
        items, times = (tuple(compress(whole, is_kept.tolist())) for whole in (self.items, self.times))
        names = self.names.filter(is_kept.tolist())
        return Requests(names, items, times, self.users[is_kept], self.at, self.are_named)

    def title(self, place: int) -> str:
        """Return the name of a request in an error."""
        return title_of(self.names[place], are_named=self.are_named)

    def to_histories(self, *, max_length: int) -> Histories:
        """Return the last events of each request, up to its time."""
        items, times = ([each[-max_length:] for each in whole] for whole in (self.items, self.times))
        next_times = [torch.cat([own[1:], own[-1:] if self.at is None else own.new_tensor([self.at])]) for own in times]
        return Histories(
            items=torch.cat(items),
            times=torch.cat(times),
            next_times=torch.cat(next_times),
            lengths=torch.tensor([len(own) for own in items]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """Histories with their original ids, one after the other."""

    names: "Series"  # (B,)
    items: "list[Series]"  # (E,) ids in all, in pieces of one type each
    times: Tensor  # (E,) seconds
    lengths: list[int]  # (B,) events of each; they sum to E
    has_times: bool
    are_named: bool
    """True if names are those that the caller gave, and not positions in a list."""


def title_of(name: object, *, are_named: bool) -> str:
    """Return how an error names a history: by its user, or by its position in the list.

    >>> title_of("ann", are_named=True), title_of(0, are_named=False)
    ("the history of 'ann'", 'histories[0]')
    """
    return f"the history of {name!r}" if are_named else f"histories[{name}]"


def find_rows(values: "Series", ids: "Series") -> Tensor:
    """Return the row of each value among ids, which are all different; -1 if there is none.

    A value of another type equals an id if nothing is lost by conversion: 3.0 and "3" equal 3, but 3.5 and "03" do not.
    """
    import polars as pl  # noqa: PLC0415

    if not len(values):
        return torch.empty(0, dtype=torch.int64)
    try:
        alike = values.cast(ids.dtype, strict=False)
        is_same = alike.cast(values.dtype, strict=False) == values
    except pl.exceptions.PolarsError:
        return torch.full((len(values),), -1)
    if ids.is_sorted():
        rows = ids.search_sorted(alike).cast(pl.Int64).clip(0, len(ids) - 1)
    else:  # items were added after training
        order = ids.arg_sort()
        rows = order.gather(ids.gather(order).search_sorted(alike).clip(0, len(ids) - 1)).cast(pl.Int64)
    is_there = (is_same & (ids.gather(rows) == alike)).fill_null(value=False)
    return torch.from_numpy(rows.set(~is_there, -1).to_numpy(writable=True))


def _of_users(users: Iterable[object], interactions: Interactions, *, remedy: str | None) -> _Asked:
    """Return the histories of users by their ids; without a remedy, those of unknown users are empty."""
    names = as_series(users, "users")
    rows = find_rows(names, interactions.user_ids)  # (B,)
    is_known = rows >= 0  # (B,)
    if remedy is not None and not bool(is_known.all()):
        place = int((~is_known).nonzero()[0])
        raise InvalidInputError(
            f"users[{place}] is {names[place]!r}, whose history is unknown; pass it as histories=..., or {remedy}."
        )
    offsets = interactions.offsets  # (U + 1,)
    starts, ends = offsets[rows], offsets[rows + is_known]  # (B,)
    places = torch.cat(
        [torch.arange(first, last) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]
        or [torch.empty(0, dtype=torch.int64)]
    )  # (E,)
    return _Asked(
        names=names,
        items=[interactions.item_ids.gather(interactions.items[places].numpy())],
        times=interactions.timestamps[places],
        lengths=(ends - starts).tolist(),
        has_times=interactions.has_times,
        are_named=True,
    )


def _of_lists(histories: object) -> _Asked:
    """Return histories that are lists of item ids; their events have no times."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    if isinstance(histories, Mapping):
        names, lists = as_series(list(histories), "histories"), list(histories.values())
    elif isinstance(histories, Sequence) and not isinstance(histories, (str, bytes)):
        names, lists = pl.Series("user", range(len(histories)), dtype=pl.Int64), list(histories)
    else:
        raise InvalidInputError(
            f"histories is a {type(histories).__name__}; give lists of item ids, a mapping to such lists, or a table."
        )
    items = [as_series(own, f"histories[{name!r}]").alias("item") for name, own in zip(names, lists, strict=True)]
    lengths = [len(own) for own in items]
    return _Asked(
        names=names,
        items=[pl.concat(alike) for _, alike in groupby(items, key=lambda own: own.dtype)],
        times=torch.zeros(sum(lengths), dtype=torch.int64),
        lengths=lengths,
        has_times=False,
        are_named=isinstance(histories, Mapping),
    )


def _known_events(
    asked: _Asked, item_ids: "Series", *, ignores: bool, remedy: str | None
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return rows and times of known items; refuse a history that has no known item, unless there is no remedy."""
    if not asked.lengths:
        raise InvalidInputError("there are no users or histories; give at least one.")
    found = torch.cat([find_rows(piece, item_ids) for piece in asked.items])  # (E,)
    is_known = found >= 0  # (E,)
    owners = torch.arange(len(asked.lengths)).repeat_interleave(torch.tensor(asked.lengths))  # (E,)
    if not ignores and not bool(is_known.all()):
        place = int((~is_known).nonzero()[0])
        item = next(islice(chain.from_iterable(asked.items), place, None))
        title = title_of(asked.names[int(owners[place])], are_named=asked.are_named)
        raise InvalidInputError(
            f'{title} has item {item!r}, which the model does not know; remove it, or pass unknown_items="ignore".'
        )
    counts = torch.bincount(owners[is_known], minlength=len(asked.lengths))  # (B,)
    if remedy is not None and not int(counts.min()):
        empty = int(counts.argmin())
        title = title_of(asked.names[empty], are_named=asked.are_named)
        raise InvalidInputError(
            f"{title} has no {'known item' if asked.lengths[empty] else 'events'}; there is nothing to recommend from: "
            f"omit it, or {remedy}."
        )
    return torch.split(found[is_known], counts.tolist()), torch.split(asked.times[is_known], counts.tolist())


def _check_time(at: object, *, has_times: bool) -> None:
    if isinstance(at, bool) or not isinstance(at, (int, np.integer)):
        raise InvalidInputError(f"at is {at!r}; give whole seconds, as in the column timestamp.")
    if not has_times:
        raise InvalidInputError(
            f"at is {at} but lists carry no times; give a table with a column timestamp, or omit at."
        )


def as_series(values: object, name: str) -> "Series":
    """Return ids of one type as a series; refuse anything else."""
    import polars as pl  # noqa: PLC0415

    if isinstance(values, pl.Series):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{name} is {values!r}; give a list of ids.")
    try:
        return pl.Series(name, list(values))
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        cause = str(error).partition("\n")[0]
        raise InvalidInputError(f"{name} does not hold ids of one type ({cause}).") from error
