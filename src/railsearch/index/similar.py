"""Similar items: item to item by their components, the exact top K of one scan.

The similarity of items x and y is the mean cosine of their components, each with its counterpart:
(1 / Px) * sum over p of cos(g_p(x), g_p(y)). It is between -1 and 1, and it is one dot product of all components,
scaled to length 1. A component of length 0 counts as 0.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import ArrayLike, check_count
from railsearch.foundation.results import SearchResult
from railsearch.index.contents import Contents
from railsearch.index.corpus import Corpus, Stretch
from railsearch.index.engines import Nearest
from railsearch.index.filters import Allow, allowed_rows_of
from railsearch.index.first_stage import best_of, shifted
from railsearch.index.keys import NOT_FOUND, to_integers
from railsearch.index.searching import QUERIES_PER_BATCH, found_ids, metadata_of
from railsearch.index.segment import Segment, lengths
from railsearch.index.strategies import Found
from railsearch.kernels import RowFilter, use_kernel

if TYPE_CHECKING:
    from polars import DataFrame

LENGTH_TOLERANCE = 1e-6
"""A length that differs from 1 by no more than this is taken for 1: similarities normalise with rounding."""
VALUES_PER_BLOCK = 2**22
"""Values of components that are scaled at once."""
UNIT = "components have length 1"


def similar_items(
    contents: Contents, ids: ArrayLike | int | str, k: int, *, exclude: ArrayLike | None, allow: Allow, pad: bool
) -> SearchResult:
    """Find the k most similar items of each item; see `Index.similar_items`."""
    k = check_count(k, name="k")
    corpus = contents.corpus  # a commit during this search does not change what it sees
    own = as_present(_as_flat(corpus.find(as_list(ids)), "ids"), ids, len(corpus.ids))  # (B,)
    check_others(k, len(corpus.ids))
    others = None if exclude is None else _as_flat(to_integers(exclude, corpus.segments, name="exclude"), "exclude")
    row_filter = filter_of(corpus, excluded_from(own, others), allow)
    found = find_similar(corpus, vectors_of(corpus, own), k, row_filter)
    if not pad:
        check_found(found.scores, k, len(corpus.ids))

    def lookup(ids: Tensor) -> "DataFrame":
        return metadata_of(corpus, ids)

    return SearchResult(
        ids=found_ids(corpus, found),
        scores=as_cosines(found.scores),
        ceiling=torch.full((len(own),), -torch.inf),
        num_scored=found.num_scored,
        lookup=lookup if corpus.has_metadata else None,
        has_keys=corpus.has_keys,
    )


def filter_of(corpus: Corpus, excluded: Sequence[Tensor], allow: Allow) -> RowFilter:
    """Return the filter that hides integer ids from each query, and all items that `allow` does not name."""
    is_allowed = None
    if allow is not None or corpus.is_live is not None:
        is_allowed = torch.zeros(len(corpus), dtype=torch.bool)  # (N,)
        is_allowed[allowed_rows_of(allow, corpus).cpu()] = True
    rows = [corpus.rows_of(ids).cpu() for ids in excluded]
    return RowFilter.from_lists(rows, device=corpus.like.device, is_allowed=is_allowed)


def check_found(scores: Tensor, k: int, num_items: int) -> None:
    """Refuse an answer with fewer than k items."""
    num_found = (scores > -torch.inf).sum(dim=1)  # (B,)
    if len(num_found) and int(num_found.min()) < k:
        query = int(num_found.argmin())
        raise NotEnoughItemsError(
            f"k is {k} but exclude and allow leave only {int(num_found[query])} of {num_items} items for item number "
            f"{query} of the request; ask for a smaller k, or pass pad=True to accept fewer."
        )


def find_similar(corpus: Corpus, vectors: Tensor, k: int, row_filter: RowFilter) -> Found:
    """Find the k rows that are most similar to each of the vectors (B, Px * d), which `vectors_of` returned."""
    wanted = vectors.to(corpus.like) / corpus.similarity.num_item_components  # (B, Px * d)
    batches = []
    for first in range(0, max(1, len(wanted)), QUERIES_PER_BATCH):
        batch = wanted[first : first + QUERIES_PER_BATCH, None]  # (B, 1, Px * d)
        own_filter = row_filter.of_queries(first, first + QUERIES_PER_BATCH)
        with use_kernel(corpus.wanted_kernel):
            batches.append(best_of(corpus, list(_scan(corpus, batch, k, own_filter)), k))
    rows = torch.cat([found.rows[:, 0] for found in batches])  # (B, K)
    scores = torch.cat([found.scores[:, 0] for found in batches])  # (B, K)
    num_scored = row_filter.num_visible(len(wanted), len(corpus))  # (B,)
    return Found(rows.clamp_min(0), scores, torch.full_like(scores[:, 0], -torch.inf), num_scored)


def vectors_of(corpus: Corpus, ids: Tensor) -> Tensor:
    """Return the components of live items (n, Px * d), each of length 1, one after the other."""
    rows = corpus.rows[torch.searchsorted(corpus.ids, ids.to(corpus.ids.device))]  # (n,)
    return unit_vectors(corpus[rows].components)


def similarity_vectors(vectors: Tensor, num_components: int) -> Tensor:
    """Return vectors (n, Px * d) of `vectors_of`, scaled so that a dot product is the similarity of two items."""
    return vectors * (1 / math.sqrt(num_components))


def unit_vectors(components: Tensor) -> Tensor:
    """Return components (n, Px, d) scaled to length 1, one after the other: (n, Px * d), at least in fp32.

    >>> unit_vectors(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])).tolist()
    [[0.6000000238418579, 0.800000011920929, 0.0, 0.0]]
    """
    found = lengths(components)  # (n, Px)
    is_unit = (found - 1).abs() <= LENGTH_TOLERANCE  # (n, Px)
    divisors = found.masked_fill(is_unit | (found == 0), 1.0)  # (n, Px)
    scaled = components.double() / divisors[..., None]  # (n, Px, d)
    return scaled.to(torch.promote_types(components.dtype, torch.float32)).flatten(1)


def as_present(integers: Tensor, ids: ArrayLike | int | str, num_items: int) -> Tensor:
    """Return the integers of items; refuse the first that is not there."""
    is_missing = integers == NOT_FOUND  # (B,)
    if bool(is_missing.any()):
        given = list(as_list(ids))  # type: ignore[arg-type]
        missing = given[int(is_missing.nonzero()[0])]
        missing = missing.item() if isinstance(missing, (Tensor, np.generic)) else missing
        raise InvalidInputError(f"item {missing!r:.80} is not among the {num_items} items of this index.")
    return integers


def as_list(ids: ArrayLike | int | str) -> ArrayLike:
    """Return a single id as a list of one."""
    return [ids] if isinstance(ids, (int, str)) else [int(ids)] if isinstance(ids, np.integer) else ids


def check_others(k: int, num_items: int) -> None:
    """Refuse a k that is greater than the number of other items."""
    if k > num_items - 1:
        raise NotEnoughItemsError(
            f"k is {k} but an item has only {num_items - 1} others in this index; ask for k <= {num_items - 1}."
        )


def excluded_from(own: Tensor, others: Tensor | None) -> list[Tensor]:
    """Return what the answer for each item (B,) must not hold: itself, and ids that are excluded from all."""
    return [item[None] if others is None else torch.cat([item[None], others]) for item in own]


def as_cosines(scores: Tensor) -> Tensor:
    """Return scores without the rounding that leaves the range of a cosine; minus infinity stays."""
    return torch.where(scores == -torch.inf, scores, scores.clamp(-1, 1)).to(torch.float32)


def _as_flat(integers: Tensor, name: str) -> Tensor:
    if integers.ndim != 1:
        raise InvalidInputError(f"{name} has shape {tuple(integers.shape)}; give a flat list of ids.")
    return integers


def _scan(corpus: Corpus, vectors: Tensor, k: int, row_filter: RowFilter) -> Iterator[Nearest]:
    for stretch in _stretches(corpus):
        table = stretch.parts.components
        rows = table.flatten(1) if _is_unit(stretch.segment) else unit_vectors(table)  # (n, Px * d)
        first = stretch.first_row
        own_filter = row_filter.of_rows(first, first + len(stretch))
        yield shifted(corpus.kernel.scan(vectors, rows, k, own_filter), first)


def _stretches(corpus: Corpus) -> Iterator[Stretch]:
    """Yield a segment as a whole if its components are scanned where they lie, otherwise in blocks."""
    similarity = corpus.similarity
    size = max(1, VALUES_PER_BLOCK // (similarity.num_item_components * similarity.component_dim))
    first_row = 0
    for segment in corpus.segments:
        step = max(1, len(segment)) if _is_unit(segment) else size
        for first in range(0, len(segment), step):
            yield Stretch(first_row + first, segment, first, min(first + step, len(segment)))
        first_row += len(segment)


def _is_unit(segment: Segment) -> bool:
    """Return whether all components of a segment have length 1, up to rounding; they are read once to find out."""
    if UNIT not in segment.facts:
        components = segment.parts.components
        step = max(1, VALUES_PER_BLOCK // max(1, components[0].numel()))
        segment.facts[UNIT] = all(
            bool(((lengths(components[first : first + step]) - 1).abs() <= LENGTH_TOLERANCE).all())
            for first in range(0, len(segment), step)
        )
    return segment.facts[UNIT]
