"""Arrays on the wire: anything array-like becomes numpy, and numpy becomes safetensors, without torch."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import InvalidInputError, ServerError
from railsearch.foundation.json_values import JsonValue

SAFETENSORS = "application/x-safetensors"
FLOATS = ("f2", "f4", "f8")
Array: TypeAlias = npt.NDArray[np.generic]
Values = TypeAliasType("Values", npt.ArrayLike)
"""A numpy array, a torch tensor on any device, or lists of numbers; an alias object, so that help() prints its name."""
ItemId: TypeAlias = int | str
ItemIds = TypeAliasType("ItemIds", Sequence[ItemId] | npt.NDArray[np.integer])


def as_floats(values: Values, *, name: str) -> Array:
    """Return embeddings as a C-contiguous array of floats; fp16 and fp64 keep their precision, bf16 becomes fp32."""
    array = _as_array(values, name)
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"{name} holds {array.dtype} values; give an array or tensor of numbers.")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        array = array.astype(np.float32)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def as_ids(values: ItemIds, *, name: str) -> list[int] | list[str]:
    """Return item ids as a list of integers or as a list of strings."""
    if isinstance(values, (str, bytes)):
        raise InvalidInputError(f"{name} is a {type(values).__name__}; give a list of ids.")
    ids = values if isinstance(values, (list, tuple)) else _as_array(values, name).tolist()
    if not isinstance(ids, (list, tuple)):
        raise InvalidInputError(f"{name} is {ids!r}; give a list of ids.")
    numbers = [int(item) for item in ids if isinstance(item, (int, np.integer)) and not isinstance(item, bool)]
    texts = [str(item) for item in ids if isinstance(item, str)]
    if len(numbers) != len(ids) and len(texts) != len(ids):
        raise InvalidInputError(f"{name} holds more than integers, or more than strings; give ids of one kind.")
    largest = max(map(abs, numbers), default=0)
    if largest >= 2**63:
        raise InvalidInputError(f"{name} holds {largest} but the largest id is {2**63 - 1}; give smaller ids.")
    return texts if texts else numbers


def encode(arrays: Mapping[str, Array], settings: Mapping[str, JsonValue]) -> bytes:
    """Return a safetensors file with the arrays, and the settings as JSON in its metadata."""
    from safetensors.numpy import save  # noqa: PLC0415  (importing this module stays cheap)

    return bytes(save(dict(arrays), {"settings": json.dumps(settings, allow_nan=False)}))


def decode(body: bytes, *, member: str) -> tuple[dict[str, Array], dict[str, JsonValue]]:
    """Return the arrays of a safetensors file, and the JSON object that its metadata hold under a name."""
    from safetensors.numpy import load  # noqa: PLC0415

    try:
        length = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + length])
        answer = json.loads(header["__metadata__"][member])
        arrays = load(body)
    except Exception as error:  # safetensors has errors of its own, and any of these means the same
        raise ServerError(f"the answer is not the expected safetensors file ({type(error).__name__}).") from error
    if not isinstance(answer, dict):
        raise ServerError(f"the answer has no JSON object {member!r} in its metadata.")
    return arrays, answer


def size_of(values: object) -> int:
    """Return about how many bytes a value takes; nested lists count the numbers of their first row."""
    if hasattr(values, "nbytes"):
        return int(values.nbytes)
    if isinstance(values, (list, tuple)) and values:
        return len(values) * max(8, size_of(values[0]))
    return len(values) if isinstance(values, (str, bytes)) else 8


def _as_array(values: object, name: str) -> Array:
    torch = sys.modules.get("torch")  # without it, nothing can be a tensor
    if torch is not None and isinstance(values, torch.Tensor):
        is_brain_float = values.dtype == torch.bfloat16  # numpy has no such type
        array: Array = (values.float() if is_brain_float else values).numpy(force=True)
        return array
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInputError(f"{name} is a masked array; fill or drop the masked values first.")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInputError(f"{name} is not an array of numbers ({error}); give rows of equal length.") from error
