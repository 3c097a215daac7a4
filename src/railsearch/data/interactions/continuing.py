"""Events under the rows of a trained model: its items and users keep their rows, and new ones follow."""

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.data.interactions.columns import rows_of
from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.splits import HeldOut, Split
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame, Series


def continue_rows(interactions: Interactions, *, items: "DataFrame", user_ids: "Series | None" = None) -> Interactions:
    """Return the same events with the rows of a trained model; rows of new items and users follow, sorted by id.

    Items of the model that the events do not mention stay candidates. A column of an item keeps the model's value if
    the interactions have none.

    Args:
        interactions: events, usually later ones than those of the model.
        items: the items of the model by row: the column `item`, and other columns.
        user_ids: users of the model by row, if it has a user table; without them, users keep the rows that they have.

    >>> import polars as pl
    >>> later = Interactions.from_frame(pl.DataFrame({"user": [1, 1], "item": [2, 7], "timestamp": [1, 2]}))
    >>> known = continue_rows(later, items=pl.DataFrame({"item": [5, 7]}))
    >>> known.item_ids.to_list(), known.items.tolist()
    ([5, 7, 2], [2, 1])
    """
    item_ids, item_rows = _continued(interactions.item_ids, items["item"], "item")
    moved = dataclasses.replace(
        interactions,
        items=item_rows[interactions.items],
        item_ids=item_ids,
        item_columns=_columns(item_ids, interactions.items_table(), items),
    )
    if user_ids is None:
        return moved
    all_users, user_rows = _continued(interactions.user_ids, user_ids, "user")
    users = user_rows[interactions.users]  # (E,)
    order = users.argsort(stable=True)  # (E,) by user; events of a user keep their order
    return dataclasses.replace(
        moved,
        users=users[order],
        items=moved.items[order],
        timestamps=moved.timestamps[order],
        ratings=None if moved.ratings is None else moved.ratings[order],
        user_ids=all_users,
    )


def continue_split(split: Split, interactions: Interactions) -> Split:
    """Return a split of the same events after `continue_rows` has moved them to the rows of a model."""
    before = split.interactions
    users = _rows(before.user_ids, interactions.user_ids)  # (U,)
    items = _rows(before.item_ids, interactions.item_ids)  # (N,)
    offsets = interactions.offsets  # (V + 1,) with the users of the model
    shifts = offsets[users] - before.offsets[:-1]  # (U,)

    def moved(held_out: HeldOut) -> HeldOut:
        return HeldOut(users[held_out.users], items[held_out.items], held_out.history_ends + shifts[held_out.users])

    train_ends = offsets[1:].clone()  # (V,) users of the model without events have none to train on
    train_ends[users] = split.train_ends + shifts
    train_starts = None
    if split.train_starts is not None:
        train_starts = offsets[:-1].clone()  # (V,)
        train_starts[users] = split.train_starts + shifts
    num_more = interactions.num_items - before.num_items
    protocol = f"{split.protocol}; {num_more:,} items of the model without events are ranked too"
    return Split(
        interactions,
        train_ends,
        None if split.validation is None else moved(split.validation),
        moved(split.test),
        protocol if num_more else split.protocol,
        train_starts,
    )


def _continued(ids: "Series", known: "Series", noun: str) -> "tuple[Series, Tensor]":
    """Return the known ids followed by new ones, and the row of each id."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    alike = _in_type_of(ids, known, noun)
    rows = rows_of(alike, known)
    everything = known.rename(noun).append(alike.filter(rows.is_null()).rename(noun)) if rows.null_count() else known
    found = rows if not rows.null_count() else rows_of(alike, everything)
    return everything, torch.from_numpy(found.cast(pl.Int64).to_numpy(writable=True))


def _in_type_of(ids: "Series", known: "Series", noun: str) -> "Series":
    """Return ids in the type of the model's; refuse ids that this would change."""
    import polars as pl  # noqa: PLC0415

    try:
        alike = ids.cast(known.dtype, strict=False)
        is_same = (alike.cast(ids.dtype, strict=False) == ids).fill_null(value=False)
    except pl.exceptions.PolarsError:
        is_same = pl.Series([False]).new_from_index(0, len(ids))
    if not is_same.all():
        raise InvalidInputError(
            f"the {noun} ids of the model are {known.dtype} but the data has {ids.filter(~is_same)[0]!r}, which is no "
            f"{known.dtype}; give {noun} ids of one type."
        )
    return alike


def _rows(ids: "Series", known: "Series") -> Tensor:
    import polars as pl  # noqa: PLC0415

    return torch.from_numpy(rows_of(ids.cast(known.dtype), known).cast(pl.Int64).to_numpy(writable=True))


def _columns(item_ids: "Series", new: "DataFrame", old: "DataFrame") -> "DataFrame | None":
    """Return the other columns of all items (N rows): the new value, or the model's if there is no new one."""
    import polars as pl  # noqa: PLC0415

    names = [name for name in dict.fromkeys([*old.columns, *new.columns]) if name != "item"]
    if not names:
        return None
    key = item_ids.rename("item").to_frame()
    aligned = [
        key.join(table.with_columns(pl.col("item").cast(item_ids.dtype)), on="item", how="left", maintain_order="left")
        for table in (new, old)
    ]
    columns = []
    for name in names:
        values = [table[name] for table in aligned if name in table.columns]
        try:
            columns.append(pl.select(pl.coalesce(values).alias(name)).to_series())
        except pl.exceptions.PolarsError as error:
            raise InvalidInputError(
                f"column {name!r} of the items holds {values[0].dtype} but the model has {values[1].dtype}; give one "
                "type."
            ) from error
    return pl.DataFrame(columns)
