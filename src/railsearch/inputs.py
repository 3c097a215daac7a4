"""Turns what users bring (arrays, tensors, lists) into checked tensors, or says what is wrong with it."""

import warnings
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from railsearch.errors import InvalidInputError

Choice = TypeVar("Choice", bound=StrEnum)
ArrayLike: TypeAlias = Tensor | npt.ArrayLike


def as_tensor(values: ArrayLike, name: str) -> Tensor:
    """Give the values as a tensor, sharing memory where that is possible."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"{name} holds {array.dtype} values; give an array or tensor of numbers.")
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    with warnings.catch_warnings():
        # A read-only array (a memory map, say) is fine here: nothing in railsearch writes to its inputs.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def as_embeddings(values: ArrayLike, *, name: str, shape: tuple[int, ...]) -> Tensor:
    """Check that the values are finite floats, one row of the given shape each."""
    tensor = as_tensor(values, name)
    if not tensor.is_floating_point():
        raise InvalidInputError(f"{name} holds {tensor.dtype} values; give floating-point embeddings.")
    check_rows(tensor, name=name, shape=shape)
    check_finite(tensor, name=name)
    return tensor


def check_rows(tensor: Tensor, *, name: str, shape: tuple[int, ...]) -> None:
    """Check that the tensor is a stack of rows of the given shape."""
    if tensor.ndim == len(shape) + 1 and tuple(tensor.shape[1:]) == shape:
        return
    expected = ", ".join(["rows", *map(str, shape)])
    remedy = (
        f"add the batch dimension with {name}[None]"
        if tuple(tensor.shape) == shape
        else "check that these embeddings belong to this similarity"
    )
    raise InvalidInputError(f"{name} has shape {tuple(tensor.shape)} but ({expected}) is needed; {remedy}.")


def check_finite(tensor: Tensor, *, name: str) -> None:
    """Check that no value is NaN or infinite, in one pass that allocates nothing."""
    if tensor.numel() == 0 or bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all()):
        return
    is_bad_row = ~torch.isfinite(tensor.flatten(1)).all(dim=1)  # (rows,)
    first = int(is_bad_row.nonzero()[0])
    raise InvalidInputError(
        f"{name} has NaN or infinite values in {int(is_bad_row.sum())} of {len(tensor)} rows, "
        f"the first is row {first}; drop or repair those rows."
    )


def as_integers(values: ArrayLike, *, name: str) -> Tensor:
    """Give the values as int64, refusing floats, which would lose large ids silently."""
    tensor = as_tensor(values, name)
    if tensor.numel() == 0:
        return tensor.to(torch.int64)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InvalidInputError(f"{name} holds {tensor.dtype} values; give integers.")
    if tensor.dtype == torch.uint64 and bool((tensor.view(torch.int64) < 0).any()):
        raise InvalidInputError(f"{name} holds a value above {2**63 - 1}; ids must fit into int64.")
    return tensor.to(torch.int64)


def as_ids(ids: ArrayLike, *, count: int) -> Tensor:
    """Check item ids: one for each of `count` items, integers, not negative, no two alike."""
    tensor = as_integers(ids, name="ids").cpu()
    if tuple(tensor.shape) != (count,):
        raise InvalidInputError(
            f"ids has shape {tuple(tensor.shape)} but there are {count} items; give one id for each item."
        )
    if count and int(tensor.min()) < 0:
        row = int(tensor.argmin())
        raise InvalidInputError(f"ids holds {int(tensor[row])} at row {row}; ids must be 0 or greater.")
    ordered, rows = tensor.sort(stable=True)
    repeated = (ordered[1:] == ordered[:-1]).nonzero().flatten()
    if len(repeated):
        place = int(repeated[0])
        raise InvalidInputError(
            f"ids holds {int(ordered[place])} more than once, at rows {int(rows[place])} and "
            f"{int(rows[place + 1])} ({len(repeated)} repeats in all); give every item its own id."
        )
    return tensor


def as_user_ids(user_ids: ArrayLike, *, count: int) -> Tensor:
    """Check user ids: one integer for each of `count` queries; a negative one stands for an unknown user."""
    tensor = as_integers(user_ids, name="user_ids")
    if tuple(tensor.shape) != (count,):
        raise InvalidInputError(
            f"user_ids has shape {tuple(tensor.shape)} but there are {count} queries; give one for each query."
        )
    return tensor


def check_count(value: object, *, name: str, minimum: int = 1) -> int:
    """Check that the value is a whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(f"{name} is {value!r}; give a whole number >= {minimum}.")
    if value < minimum:
        raise InvalidInputError(f"{name} is {value}; ask for {name} >= {minimum}.")
    return int(value)


def check_share(value: float, *, name: str) -> None:
    """Check that the value can be a dropout rate."""
    if not 0.0 <= value < 1.0:
        raise InvalidInputError(f"{name} is {value}; give a rate of at least 0 and below 1.")


def check_positive(value: float, *, name: str) -> float:
    """Check that the value is a finite number above zero."""
    if not 0.0 < value < float("inf"):
        raise InvalidInputError(f"{name} is {value}; give a finite number above 0.")
    return value


def check_not_negative(value: float, *, name: str) -> float:
    """Check that the value is a finite number of at least zero."""
    if not 0.0 <= value < float("inf"):
        raise InvalidInputError(f"{name} is {value}; give a finite number of 0 or more.")
    return value


def as_choice(choices: type[Choice], value: str, *, name: str) -> Choice:
    """Give the member of a closed choice, or list the members."""
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(choices)
        raise InvalidInputError(f"{name} is {value!r}; choose from: {known}.") from None


def as_id_lists(lists: ArrayLike | Sequence[ArrayLike], *, name: str, count: int) -> list[Tensor]:
    """Check one list of integers for each of `count` queries; lists may differ in length."""
    try:
        length = len(lists)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidInputError(f"{name} is a {type(lists).__name__}; give one list of ids for each query.") from error
    if length != count:
        raise InvalidInputError(
            f"{name} has {length} lists but there are {count} queries; give one list of ids for each query."
        )
    checked = [as_integers(ids, name=f"{name}[{query}]").cpu() for query, ids in enumerate(lists)]  # type: ignore[arg-type]
    for query, ids in enumerate(checked):
        if ids.ndim != 1:
            raise InvalidInputError(
                f"{name}[{query}] has shape {tuple(ids.shape)}; give one flat list of ids for each query."
            )
    return checked
