"""Checks of arguments: arrays, tensors and lists become tensors, and every error names the argument."""

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import InvalidInputError

Choice = TypeVar("Choice", bound=StrEnum)


@runtime_checkable
class ArrowTable(Protocol):
    """A table of any library that supports the Arrow interface, such as a polars or pandas DataFrame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of record batches."""
        ...


ArrayLike = TypeAliasType("ArrayLike", Tensor | npt.ArrayLike)
"""A tensor, or anything that numpy makes an array of; an alias object, so that help() prints its name alone."""

LARGEST_VALUE = 1e6
"""Embeddings are usually near 1. Beyond this, squares of squares no longer fit into fp32, and scores turn to noise."""
LARGEST_INTEGER = 2**63 - 1
"""The largest id, count and seed: the largest int64."""
LARGEST_SEED = LARGEST_INTEGER

SHOWN_DIGITS = 40

_warning_filters = threading.Lock()


def as_tensor(values: ArrayLike, name: str) -> Tensor:
    """Return the values as a tensor of numbers, which shares their memory if possible."""
    if isinstance(values, Tensor):
        if values.layout is not torch.strided or values.is_complex():
            raise InvalidInputError(f"{name} is a {values.layout} tensor of {values.dtype}; give a dense, real one.")
        return values.detach()
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInputError(f"{name} is a masked array; fill or drop the masked values first.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInputError(f"{name} is not an array of numbers ({error}); give rows of equal length.") from error
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InvalidInputError(f"{name} holds {array.dtype} values; give an array or tensor of numbers.")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.dtype.isnative:
        array = array.view(np.dtype("u8"))  # numpy has two types of this size; torch supports one of them
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    if array.flags.writeable:
        return torch.from_numpy(array)
    with _warning_filters, warnings.catch_warnings():
        # A read-only array, such as a memory map, is fine here: railsearch never writes to its inputs.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def as_embeddings(values: ArrayLike, *, name: str, shape: tuple[int, ...]) -> Tensor:
    """Check that the values are finite floats of a usual size, in rows of the given shape."""
    tensor = as_tensor(values, name)
    if not tensor.is_floating_point():
        raise InvalidInputError(f"{name} holds {tensor.dtype} values; give floating-point embeddings.")
    check_rows(tensor, name=name, shape=shape)
    if not tensor.numel():
        return tensor
    least, greatest = torch.aminmax(tensor)
    if not (float(least) >= -LARGEST_VALUE and float(greatest) <= LARGEST_VALUE):  # also if one of them is NaN
        check_finite(tensor, name=name)
        row = int(tensor.flatten(1).abs().amax(dim=1).argmax())
        raise InvalidInputError(
            f"{name} has values as large as {float(tensor[row].abs().max()):g}, in row {row}; scale embeddings "
            f"to at most {LARGEST_VALUE:g} (usually they are near 1)."
        )
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
    if is_finite(tensor):
        return
    is_bad_row = ~torch.isfinite(tensor.flatten(1)).all(dim=1)  # (rows,)
    first = int(is_bad_row.nonzero()[0])
    raise InvalidInputError(
        f"{name} has NaN or infinite values in {int(is_bad_row.sum())} of {len(tensor)} rows, "
        f"the first is row {first}; drop or repair those rows."
    )


def is_finite(tensor: Tensor) -> bool:
    """Return whether every value is finite; NaN and infinity both show in the extremes."""
    return tensor.numel() == 0 or bool(torch.isfinite(torch.stack(torch.aminmax(tensor.detach()))).all())


def as_integers(values: ArrayLike, *, name: str) -> Tensor:
    """Return the values as int64; refuse floats, in which large ids would lose their last digits."""
    try:
        tensor = as_tensor(values, name)
    except InvalidInputError:
        _check_range(values, name)
        raise
    if tensor.numel() == 0:
        return tensor.to(torch.int64)
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        _check_range(values, name)
        raise InvalidInputError(f"{name} holds {tensor.dtype} values; give integers.")
    if tensor.dtype == torch.uint64 and bool((tensor.view(torch.int64) < 0).any()):
        _check_range(tensor.tolist(), name)
    return tensor.to(torch.int64)


def _check_range(values: object, name: str) -> None:
    """Refuse a list with integers beyond int64, which numpy reads as floats or objects."""
    pending = [values]
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending += reversed(value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidInputError(f"{name} holds {value} but the largest id is {2**63 - 1}; give smaller ids.")


def is_mask(values: ArrayLike) -> bool:
    """Return whether the values are a mask of true and false, and not numbers."""
    if isinstance(values, Tensor):
        return values.dtype == torch.bool
    if isinstance(values, np.ma.MaskedArray):
        return False
    try:
        return np.asarray(values).dtype == np.bool_
    except (ValueError, TypeError, RuntimeError):
        return False  # as_integers reports what is wrong with it


def as_ids(ids: ArrayLike, *, count: int) -> Tensor:
    """Check item ids, and return a copy: one for each of `count` items, integers, not negative, no two equal."""
    tensor = as_integers(ids, name="ids").cpu().clone()
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
    """Check user ids: one integer for each of `count` queries; unknown users have a negative id."""
    tensor = as_integers(user_ids, name="user_ids")
    if tuple(tensor.shape) != (count,):
        raise InvalidInputError(
            f"user_ids has shape {tuple(tensor.shape)} but there are {count} queries; give one for each query."
        )
    return tensor


def as_id_lists(
    lists: ArrayLike | Sequence[object],
    *,
    name: str,
    count: int,
    convert: Callable[[ArrayLike, str], Tensor] = lambda ids, name: as_integers(ids, name=name),
) -> list[Tensor]:
    """Check one list, set or array of ids for each of `count` queries; None is an empty one.

    `convert` takes the ids of one query and their name, and returns integers.
    """
    is_flat = isinstance(lists, (Tensor, np.ndarray)) and lists.ndim == 0
    if is_flat or isinstance(lists, (str, bytes, dict, set, frozenset)) or not hasattr(lists, "__len__"):
        raise InvalidInputError(f"{name} is a {type(lists).__name__}; give one list of ids for each query.")
    by_query: Sequence[object] = lists  # type: ignore[assignment]  # anything with a length can be iterated
    if len(by_query) != count:
        raise InvalidInputError(
            f"{name} has {len(by_query)} lists but there are {count} queries; give one list of ids for each query."
        )
    checked = []
    for query, given in enumerate(by_query):
        ids: ArrayLike = [] if given is None else list(given) if isinstance(given, (set, frozenset)) else given  # type: ignore[assignment]
        checked.append(convert(ids, f"{name}[{query}]").cpu())
        if checked[-1].ndim != 1:
            raise InvalidInputError(
                f"{name}[{query}] has shape {tuple(checked[-1].shape)}; give one flat list of ids for each query."
            )
    return checked


def as_path(path: object) -> Path:
    """Check that the value names a file or folder, and return its absolute path."""
    if not isinstance(path, (str, os.PathLike)) or not str(path) or "\0" in str(path):
        raise InvalidInputError(f"path is {path!r}; give the name of a folder.")
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as error:
        raise InvalidInputError(
            f"path is {str(path)!r}, whose symbolic links form a loop; give another path."
        ) from error


def as_file(path: object) -> Path:
    """Check that a path names an existing file."""
    file = as_path(path)
    if not file.is_file():
        raise InvalidInputError(f"{file} does not exist or is not a file; give the path of a file.")
    return file


def as_choice(choices: type[Choice], value: str, *, name: str) -> Choice:
    """Return the member of a closed choice; an error lists the members."""
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(choices)
        raise InvalidInputError(f"{name} is {value!r}; choose from: {known}.") from None


def check_count(value: object, *, name: str, minimum: int = 1, maximum: int = LARGEST_INTEGER) -> int:
    """Check that the value is a whole number from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(f"{name} is {value!r}; give a whole number >= {minimum}.")
    if value < minimum:
        raise InvalidInputError(f"{name} is {_shown(value)}; ask for {name} >= {minimum}.")
    if value > maximum:
        raise InvalidInputError(f"{name} is {_shown(value)}; ask for {name} <= {maximum}.")
    return int(value)


def check_seed(value: object) -> int:
    """Check that the value can seed a generator."""
    return check_count(value, name="seed", minimum=0)


def check_share(value: object, *, name: str) -> float:
    """Check that the value can be a dropout rate."""
    number = _as_number(value, name=name)
    if not 0.0 <= number < 1.0:
        raise InvalidInputError(f"{name} is {number}; give a rate of at least 0 and below 1.")
    return number


def check_positive(value: object, *, name: str) -> float:
    """Check that the value is a finite number above zero."""
    number = _as_number(value, name=name)
    if not 0.0 < number < float("inf"):
        raise InvalidInputError(f"{name} is {number}; give a finite number above 0.")
    return number


def check_not_negative(value: object, *, name: str) -> float:
    """Check that the value is a finite number of at least zero."""
    number = _as_number(value, name=name)
    if not 0.0 <= number < float("inf"):
        raise InvalidInputError(f"{name} is {number}; give a finite number of 0 or more.")
    return number


def _as_number(value: object, *, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInputError(f"{name} is {value!r}; give a number.")
    try:
        return float(value)
    except OverflowError:
        raise InvalidInputError(f"{name} is {_shown(value)}; give a number that fits into fp64.") from None


def _shown(value: object) -> str:
    """Return a number as text; Python refuses to print a number of more than 4,300 digits."""
    try:
        text = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN_DIGITS else f"{text[:SHOWN_DIGITS]}..."
