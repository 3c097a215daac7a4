"""Checks of (query row, item row) pairs, which say what is right for each query."""

from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_integers


def as_pairs(pairs: ArrayLike, *, name: str, size: tuple[int, int]) -> Tensor:
    """Check (query row, item row) pairs against the number of queries and items."""
    tensor = as_integers(pairs, name=name)
    if tensor.ndim != 2 or tensor.shape[1] != 2 or len(tensor) == 0:
        raise InvalidInputError(
            f"{name} has shape {tuple(tensor.shape)}; give at least one (query row, item row): (pairs, 2)."
        )
    for column, side in enumerate(("query", "item")):
        is_outside = (tensor[:, column] < 0) | (tensor[:, column] >= size[column])
        if bool(is_outside.any()):
            row = int(is_outside.nonzero()[0])
            raise InvalidInputError(
                f"{name}[{row}] names {side} row {int(tensor[row, column])} but there are {size[column]} "
                f"{side} embeddings; rows count from 0."
            )
    return tensor
