"""Changes to an index as functions from segments to segments, the same in memory and on disk."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike
from railsearch.index.corpus import Corpus
from railsearch.index.keys import as_keys, has_keys, to_integers
from railsearch.index.metadata import Metadata
from railsearch.index.segment import Segment, join

Keep: TypeAlias = Callable[[Segment], Segment]
"""Stores a new segment on disk and returns it; in memory, returns it as it is."""

SMALL = 65_536
"""Rows below which a segment is joined with additions of its size, so that many additions leave few segments."""


def with_added(segments: Sequence[Segment], added: Segment, keep: Keep, *, largest: int) -> list[Segment]:
    """Append a new segment; small ones before it are joined with it, up to about `largest` rows."""
    result = _drop_empty(segments)
    while result and len(result[-1]) < min(SMALL, largest) and len(result[-1]) <= 2 * len(added):
        added = join([result.pop(), added])
    return [*result, keep(added)]


def without_ids(segments: Sequence[Segment], ids: Tensor, *, missing_ok: bool) -> list[Segment]:
    """Return the same segments, in which these items are no longer live."""
    if not missing_ok:
        is_known = torch.zeros_like(ids, dtype=torch.bool)  # (n,)
        for segment in segments:
            is_known |= segment.has_live(ids)
        if not bool(is_known.all()):
            first = int(ids[~is_known][0])
            raise _missing(first, int((~is_known).sum()))
    left = [segment.without(ids) for segment in segments]
    return _drop_empty(left) or left[:1]


def without_items(segments: Sequence[Segment], ids: ArrayLike, *, missing_ok: bool) -> list[Segment]:
    """Do the same with ids as a user gives them: integers, or strings if the index has those."""
    integers = to_integers(ids, segments, name="ids")  # (n,)
    is_missing = integers < 0 if has_keys(segments) else torch.zeros_like(integers, dtype=torch.bool)  # (n,)
    if not missing_ok and bool(is_missing.any()):
        first = (as_keys(ids, name="ids") or [])[int(is_missing.nonzero()[0])]
        raise _missing(first, int(is_missing.sum()))
    return without_ids(segments, torch.unique(integers[~is_missing]), missing_ok=missing_ok)


def compacted(corpus: Corpus, rows_per_segment: int) -> Iterator[Segment]:
    """Yield all live items in new segments, in the order of their ids."""
    frame = corpus.frame
    for first in range(0, max(1, len(corpus.rows)), rows_per_segment):
        rows = corpus.rows[first : first + rows_per_segment]  # (n,)
        parts = corpus[rows] if len(rows) else corpus.segments[0].stored_parts[:0]
        metadata = None if frame is None else Metadata(frame[rows.cpu().numpy()])
        yield Segment.build(corpus.row_ids[rows], parts, metadata)


def _missing(first: int | str, count: int) -> InvalidInputError:
    return InvalidInputError(
        f"id {first!r:.80} is not in the index ({count} of the given ids are not); omit it, or pass missing_ok=True."
    )


def _drop_empty(segments: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.num_live]
