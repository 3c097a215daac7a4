"""Calls that a server needs of an index: versions side by side, queries without neighbours, and items by id or text."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, check_count
from railsearch.index import searching
from railsearch.index.index import Index
from railsearch.index.keys import NOT_FOUND
from railsearch.index.metadata import KEY
from railsearch.index.similar import similarity_vectors, vectors_of
from railsearch.index.tuned import TunedStrategy
from railsearch.index.tuning import TuningReport
from railsearch.similarity import QueryParts

if TYPE_CHECKING:
    from polars import DataFrame, Schema

ROWS_PER_STEP = 65_536
"""Rows that are compared with a text at once."""


def reopen(index: Index) -> Index:
    """Return the newest version of an index folder as another index; the given one stays at its version.

    Segments that both versions have are neither read nor mapped again.
    """
    return Index(contents=index.contents.reopen())


def open_version(index: Index, version: int, *, check_base: Callable[[], None] | None = None) -> Index:
    """Return a version of an index folder as another index, as `reopen` does.

    With `check_base`, changes to it start from this version, even if there are later ones: these are abandoned. The
    function is called with the lock held, and raises if this must not happen any more.
    """
    return Index(contents=index.contents.reopen(version, check_base=check_base))


def is_same_version(one: Index, other: Index) -> bool:
    """Return whether two indexes of one folder have the same version open."""
    return one is other or (one.contents.manifest is not None and one.contents.manifest == other.contents.manifest)


def warm_up(index: Index) -> None:
    """Open all tables of the engine and search once, so that the first query does not wait."""
    index.prepare_engine()
    if len(index):
        shape = index.contents.corpus.similarity.query_shape
        index.search(torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)), 1)


def tuned_strategy(index: Index, k: int) -> TunedStrategy | None:
    """Return the strategy that a search for k uses if none is named; None for brute force."""
    return index.contents.tuned_strategy(k)


def measure_strategies(
    index: Index,
    sample_queries: ArrayLike,
    k: int,
    *,
    target_recall: float,
    confidence: float,
    user_ids: ArrayLike | None = None,
) -> TuningReport:
    """Choose a strategy as `Index.tune` does, but change nothing: others may write meanwhile."""
    return searching.measure_strategies(
        index.contents, sample_queries, k, target_recall, confidence, user_ids=user_ids, show_progress=False
    )


def remember_choice(index: Index, report: TuningReport, *, version: int) -> None:
    """Commit the strategy that was chosen on a version, for this k."""
    searching.remember_choice(index.contents, report, version=version)


def query_parts(index: Index, queries: ArrayLike, *, user_ids: ArrayLike | None = None) -> QueryParts:
    """Return the query side of queries, for `Index.search`; that of one query does not depend on the others."""
    return searching.stable_query_parts(index.contents, queries, user_ids)


def tuned_strategies(index: Index) -> dict[str, TunedStrategy]:
    """Return all tuned strategies; the name tells the k and the engine: "k = 10, Flat()"."""
    return {name: TunedStrategy.parse(text) for name, text in index.contents.tuned.items()}


def metadata_schema(index: Index) -> "Schema":
    """Return the names and types of the metadata columns, without string ids; gathers no rows."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    metadata = index.contents.corpus.segments[0].metadata
    columns = {} if metadata is None else metadata.frame.schema
    return pl.Schema({name: kind for name, kind in columns.items() if name != KEY})


def describe_items(index: Index, ids: ArrayLike) -> "DataFrame":
    """Return a table of items: the column id, and their metadata. Raises InvalidInputError if one is not there."""
    corpus = index.contents.corpus
    integers = corpus.find(ids)  # (n,)
    if bool((integers == NOT_FOUND).any()):
        raise InvalidInputError(f"{int((integers == NOT_FOUND).sum())} of {len(integers)} ids are not in the index.")
    return _table(index, torch.searchsorted(corpus.ids.cpu(), integers))


def item_vectors(index: Index, ids: Tensor) -> Tensor:
    """Return vectors (n, D) of live items by integer id; their dot product is the score of `Index.similar_items`."""
    corpus = index.contents.corpus
    return similarity_vectors(vectors_of(corpus, ids), corpus.similarity.num_item_components)


def find_text(index: Index, text: str, *, limit: int = 20, column: str | None = None) -> "DataFrame":
    """Return the first items, by id, that contain a text in a column of text, in upper or lower case.

    Args:
        index: an index with columns of text, or with string ids.
        text: the text to find; an empty one finds the first items.
        limit: the largest number of items to return.
        column: the only column to look at; by default all columns of text.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    check_count(limit, name="limit")
    corpus = index.contents.corpus
    places = torch.arange(min(limit, len(corpus.ids)))  # (L,)
    frame = corpus.frame
    names = [] if frame is None else [name for name, kind in frame.schema.items() if kind == pl.String]
    if column is not None and column not in names:
        raise InvalidInputError(
            f"column is {column!r:.80}, which is not a column of text; choose from: {', '.join(names) or 'none'}."
        )
    if not text:
        return _table(index, places)
    found: list[Tensor] = []
    wanted = text.lower()
    rows = corpus.rows.cpu()
    for first in range(0, len(rows) if frame is not None and names else 0, ROWS_PER_STEP):
        assert frame is not None
        part = frame.select(names if column is None else [column])[rows[first : first + ROWS_PER_STEP].numpy()]
        has_text = part.select(pl.any_horizontal(pl.all().str.to_lowercase().str.contains(wanted, literal=True)))
        mask = torch.from_numpy(has_text.to_series().fill_null(value=False).to_numpy(writable=True))
        found.append(first + mask.nonzero().flatten())
        if sum(map(len, found)) >= limit:
            break
    return _table(index, torch.cat(found)[:limit] if found else places[:0])


def _table(index: Index, places: Tensor) -> "DataFrame":
    """Return the items at these places (n,) among `index.ids`."""
    import polars as pl  # noqa: PLC0415

    corpus = index.contents.corpus
    frame = corpus.frame
    ids = pl.Series(KEY, corpus.ids.cpu()[places].numpy())
    if frame is None:
        return ids.to_frame()
    rows = frame[corpus.rows.cpu()[places].numpy()]
    return rows.select(KEY, pl.exclude(KEY)) if KEY in rows.columns else rows.insert_column(0, ids)
