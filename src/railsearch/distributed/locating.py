"""Find items by their ids: in the shards that their hash names, or in all of them if a column decides."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.distributed.assignment import shards_of_ids
from railsearch.distributed.layout import Layout
from railsearch.distributed.searching import answers_of
from railsearch.distributed.workers import Call, Workers
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_integers
from railsearch.index.keys import NOT_FOUND, as_keys


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Where given ids are."""

    integers: Tensor  # (n,) int64, -1 for an id that is not there
    shards: Tensor  # (n,) int64, its shard; undefined if it is not there


def check_ids(ids: ArrayLike, layout: Layout) -> Tensor | list[str]:
    """Return ids as a split index takes them: a flat list of strings if it has keys, otherwise of integers."""
    keys = as_keys(ids, name="ids")
    if keys is not None:
        if not layout.has_keys:
            raise InvalidInputError(
                f"ids holds the string {keys[0]!r:.80} but the ids of this index are integers; give integers."
            )
        return keys
    integers = as_integers(ids, name="ids").cpu()
    if integers.ndim != 1:
        raise InvalidInputError(f"ids has shape {tuple(integers.shape)}; give a flat list of ids.")
    if len(integers) and layout.has_keys:
        raise InvalidInputError(
            f"ids holds the integer {int(integers[0])} but the ids of this index are strings; give strings."
        )
    return [] if layout.has_keys else integers


def locate(workers: Workers, layout: Layout, versions: Sequence[int], ids: Tensor | list[str]) -> Located:
    """Find items, in versions of the shards."""
    integers = torch.full((len(ids),), NOT_FOUND, dtype=torch.int64)  # (n,)
    shards = torch.zeros_like(integers)  # (n,)
    everything = torch.arange(len(ids))  # (n,)
    if not len(ids):
        return Located(integers, shards)
    if layout.by is None:
        shards = shards_of_ids(ids, layout.num_shards)
        rows = {number: (shards == number).nonzero().flatten() for number in torch.unique(shards).tolist()}
    else:
        rows = dict.fromkeys(range(layout.num_shards), everything)
    calls = [Call(number, "find", {"version": versions[number], "ids": take(ids, own)}) for number, own in rows.items()]
    for (number, own), found in zip(rows.items(), answers_of(workers, calls), strict=True):
        assert isinstance(found, Tensor)
        is_here = found != NOT_FOUND  # (m,)
        integers[own[is_here]] = found[is_here]
        shards[own[is_here]] = number
    return Located(integers, shards)


def take(ids: Tensor | list[str], rows: Tensor) -> Tensor | list[str]:
    """Return the ids at some rows (m,)."""
    return ids[rows] if isinstance(ids, Tensor) else [ids[row] for row in rows.tolist()]
