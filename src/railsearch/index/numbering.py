"""Integer ids for new items: their own, the next free ones, or one for each string id."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import IdExistsError, InvalidInputError
from railsearch.foundation.inputs import LARGEST_INTEGER, ArrayLike, as_ids
from railsearch.index.keys import as_keys, find_keys, has_keys
from railsearch.index.segment import Segment


@dataclass(frozen=True, slots=True, eq=False)
class Numbered:
    """The integer ids of some items, and their string ids if they have any."""

    ids: Tensor  # (n,)
    keys: list[str] | None


class Numbering:
    """The ids of one build, addition or replacement, batch by batch."""

    def __init__(
        self,
        segments: Sequence[Segment] = (),
        *,
        replaces: bool = False,
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        """Store the items that exist, and whether new ones may replace them.

        With `numbers`, they are the integers of new string ids: an index that is split over several folders numbers
        its items across all of them.
        """
        self._segments = segments
        self._numbers = numbers
        self._replaces = replaces
        self._next = 1 + max((int(segment.ids[-1]) for segment in segments if len(segment)), default=-1)
        self._has_keys = has_keys(segments) if segments else None  # of a new index, the first batch decides
        self._given: set[str] = set()

    def number(self, ids: ArrayLike | None, count: int) -> Numbered:
        """Check the ids of `count` items, and return their integers; omitted ids count from the greatest one."""
        keys = None if ids is None else as_keys(ids, name="ids")
        if self._has_keys is None:
            self._has_keys = keys is not None
        if self._has_keys and keys is None:
            found = "ids is missing" if ids is None else "ids holds integers"
            raise InvalidInputError(f"{found} but the ids of this index are strings; give a string for each item.")
        if keys is not None:
            if not self._has_keys:
                raise InvalidInputError(
                    f"ids holds the string {keys[0]!r:.80} but the ids of this index are integers; give integers."
                )
            return Numbered(self._of_keys(keys, count), keys)
        if ids is not None:
            return Numbered(as_ids(ids, count=count), None)
        if self._replaces:
            raise InvalidInputError("ids is missing; give the ids of the items to replace, or use add.")
        return Numbered(self._take(count), None)

    def _of_keys(self, keys: list[str], count: int) -> Tensor:
        if len(keys) != count:
            raise InvalidInputError(
                f"ids has {len(keys)} strings but there are {count} items; give one id for each item."
            )
        for row, key in enumerate(keys):
            if key in self._given:
                raise InvalidInputError(
                    f"ids holds {key!r:.80} more than once, the second time in row {row}; give every item its own id."
                )
            self._given.add(key)
        ids = find_keys(keys, self._segments)  # (n,)
        is_new = ids < 0  # (n,)
        if not self._replaces and not bool(is_new.all()):
            first = keys[int((~is_new).nonzero()[0])]
            raise IdExistsError(
                f"id {first!r:.80} is already in the index ({int((~is_new).sum())} of the given ids are); use upsert "
                "to replace items."
            )
        if self._numbers is None:
            ids[is_new] = self._take(int(is_new.sum()))
        else:
            new = [self._numbers[keys[row]] for row in is_new.nonzero().flatten().tolist()]
            ids[is_new] = torch.tensor(new, dtype=torch.int64)
        return ids

    def _take(self, count: int) -> Tensor:
        """Return the next `count` integers."""
        first, self._next = self._next, self._next + count
        if self._next > LARGEST_INTEGER:
            raise InvalidInputError(f"{count} ids after {first - 1} do not fit into int64; give ids.")
        return torch.arange(first, self._next)  # (n,)


class SeenIds:
    """The ids of existing segments, to find repeats in new ones.

    New ids are kept as few ascending lists, each longer than the next, so that millions of ids in many segments are
    compared in little more than the time of a sort.
    """

    def __init__(self, segments: Iterable[Segment], remedy: str) -> None:
        self._segments = list(segments)
        self._lists: list[Tensor] = []  # (n,) ascending
        self._remedy = remedy

    def add(self, segment: Segment) -> Segment:
        """Check that none of its ids was seen before, and return the segment."""
        ids = segment.ids  # (n,)
        is_known = torch.zeros_like(ids, dtype=torch.bool)  # (n,)
        for own in self._segments:
            if not _are_apart(own.ids, ids):
                is_known |= own.has_live(ids)
        for known in self._lists:
            if not _are_apart(known, ids):
                places = torch.searchsorted(known, ids).clamp_max_(len(known) - 1)  # (n,)
                is_known |= known[places] == ids
        if bool(is_known.any()):
            first = int(ids[is_known][0])
            raise IdExistsError(
                f"id {first} is already in the index ({int(is_known.sum())} of the given ids are); {self._remedy}."
            )
        self._keep(ids)
        return segment

    def _keep(self, ids: Tensor) -> None:
        """Keep ascending ids, joined with lists that are no longer."""
        while self._lists and len(self._lists[-1]) <= len(ids):
            before = self._lists.pop()
            is_ordered = not len(before) or not len(ids) or int(before[-1]) < int(ids[0])
            ids = torch.cat([before, ids])
            ids = ids if is_ordered else ids.sort().values
        self._lists.append(ids)


def _are_apart(some: Tensor, others: Tensor) -> bool:
    """Return whether the ranges of two ascending lists do not overlap."""
    if not len(some) or not len(others):
        return True
    return int(some[-1]) < int(others[0]) or int(others[-1]) < int(some[0])
