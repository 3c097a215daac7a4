"""Interactions in any form that a recommender takes: tables, prepared folders and splits."""

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import TypeAliasType

from railsearch.data import Interactions, Split, leave_last_out, read_prepared
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrowTable
from railsearch.recommender.requests import find_rows

if TYPE_CHECKING:
    from polars import Series

InteractionsLike = TypeAliasType("InteractionsLike", Interactions | ArrowTable)


def as_interactions(given: InteractionsLike) -> Interactions:
    """Return interactions; convert a table with the columns user, item and timestamp if necessary."""
    if isinstance(given, (str, Path)):
        raise InvalidInputError(
            f"interactions is {str(given)!r}; read_prepared reads a prepared folder, and read_interactions a file: "
            "give what they return."
        )
    return given if isinstance(given, Interactions) else Interactions.from_frame(given)


def as_split(data: Split | InteractionsLike | str | Path, *, has_validation: bool) -> Split:
    """Return a split; if the interactions are not split yet, hold out the last items of each user."""
    if isinstance(data, Split):
        return data
    interactions = read_prepared(data) if isinstance(data, (str, Path)) else as_interactions(data)
    return leave_last_out(interactions, has_validation=has_validation)


def split_of(interactions: InteractionsLike, split: Split | None, *, has_validation: bool) -> Split:
    """Return the split to train on: the given one, which must be of these interactions, or the last items held out."""
    known = as_interactions(interactions)
    if split is None:
        return leave_last_out(known, has_validation=has_validation)
    if split.interactions is not known:
        raise InvalidInputError("the split belongs to other interactions; split the given ones.")
    return split


def check_items(split: Split, known: "Series") -> None:
    """Check that the items of a split are those of the model, in the same order."""
    given = split.interactions
    if find_rows(given.item_ids, known).tolist() != list(range(len(known))):
        raise InvalidInputError(
            f"the split has {given.num_items} items and they are not the {len(known)} of this model; split the "
            "interactions that it was trained on, or ones with the same catalogue."
        )
