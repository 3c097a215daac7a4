"""String ids of items, called keys: checks of given ones, and the integer ids that they stand for.

An index with keys stores them as one more column of its metadata. Inside, every item has an integer id, given in the
order of addition. A key stands for one live item, and keeps its integer id until the item is removed.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_integers
from railsearch.index.metadata import Metadata
from railsearch.index.segment import Segment

NOT_FOUND = -1


def as_keys(values: ArrayLike, *, name: str) -> list[str] | None:
    """Check string ids, and return them as a list; None if the values are not strings.

    >>> as_keys(["sku-1", "sku-2"], name="ids")
    ['sku-1', 'sku-2']
    >>> as_keys([1, 2], name="ids")
    """
    given = _as_list(values, name)
    if not any(isinstance(value, str) for value in given):
        return None
    for row, value in enumerate(given):
        if not isinstance(value, str):
            text = next(text for text in given if isinstance(text, str))
            raise InvalidInputError(
                f"{name} holds the string {text!r:.80} and, in row {row}, {value!r:.80}; give only strings, or only "
                "integers."
            )
        if not value or not _is_unicode(value):
            state = "half of a surrogate pair, which is not a character" if value else "an empty string"
            raise InvalidInputError(f"{name} has {state} in row {row}; give every item an id of visible text.")
    return [str(value) for value in given]  # numpy has its own class of strings


def has_keys(segments: Sequence[Segment]) -> bool:
    """Return whether the ids of these segments are strings."""
    metadata = segments[0].metadata
    return metadata is not None and metadata.has_keys


def find_keys(keys: Sequence[str], segments: Sequence[Segment]) -> Tensor:
    """Return the integer id of each key (n,); -1 if no live item has it."""
    ids = torch.full((len(keys),), NOT_FOUND)  # (n,)
    for segment in segments:
        if segment.metadata is None or not len(segment):
            continue
        rows = segment.metadata.rows_of_keys(keys)  # (n,)
        is_here = rows >= 0  # (n,)
        if segment.is_live is not None:
            is_here &= segment.is_live.cpu()[rows]
        is_twice = is_here & (ids >= 0)  # (n,)
        if bool(is_twice.any()):
            raise _repeated(keys[int(is_twice.nonzero()[0])], segment.metadata)
        ids[is_here] = segment.ids.cpu()[rows[is_here]]
    return ids


def to_integers(ids: ArrayLike, segments: Sequence[Segment], *, name: str) -> Tensor:
    """Return ids as the integers of these segments (n,): strings if these have keys, otherwise integers.

    A string that no live item has becomes -1.
    """
    keys = as_keys(ids, name=name)
    if keys is None:
        integers = as_integers(ids, name=name).cpu()
        if integers.numel() and has_keys(segments):
            raise InvalidInputError(
                f"{name} holds the integer {int(integers.flatten()[0])} but the ids of this index are strings; give "
                "strings."
            )
        return integers
    if not has_keys(segments):
        raise InvalidInputError(
            f"{name} holds the string {keys[0]!r:.80} but the ids of this index are integers; give integers."
        )
    return find_keys(keys, segments)


def check_keys(segments: Sequence[Segment]) -> None:
    """Refuse segments in which two live items have the same key, or one has none; reads all keys."""
    seen: set[str] = set()
    for segment in segments if has_keys(segments) else ():
        assert segment.metadata is not None
        for key in segment.metadata.keys_of(segment.live_rows):
            if key in seen:
                raise _repeated(key, segment.metadata)
            seen.add(key)


def _repeated(key: str, metadata: Metadata) -> IndexFolderError:
    return IndexFolderError(
        f"{metadata.path} holds id {key!r:.80}, which another segment holds too; restore the folder from a copy."
    )


def _as_list(values: ArrayLike, name: str) -> Sequence[object]:
    """Return the values if some of them may be strings, otherwise an empty list."""
    if isinstance(values, str):
        raise InvalidInputError(f"{name} is {values!r:.80}, a single string; give a list of ids.")
    if isinstance(values, AbstractSet):
        raise InvalidInputError(f"{name} is a {type(values).__name__}, which has no order; give a list of ids.")
    if isinstance(values, (list, tuple)):
        return values
    if isinstance(values, (Tensor, np.ma.MaskedArray)):
        return []
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        return []  # as_integers reports what is wrong with it
    if array.dtype.kind in "biufcmMSV" or array.ndim == 0:
        return []
    if array.ndim > 1:
        raise InvalidInputError(f"{name} has shape {array.shape}; give a flat list of ids.")
    listed: list[object] = array.tolist()
    return listed


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
