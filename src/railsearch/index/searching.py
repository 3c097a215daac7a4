"""One search from its arguments to its result: checks, batches of queries, and rows that become ids."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, as_tensor, as_user_ids, check_count, check_positive
from railsearch.foundation.recall import ExpectedRecall
from railsearch.foundation.results import NO_ITEM, Explanation, SearchResult
from railsearch.index.building import check_not_lost, check_parts
from railsearch.index.certificate import as_float32
from railsearch.index.contents import Contents
from railsearch.index.corpus import Corpus
from railsearch.index.filters import Allow, Exclude, allowed_rows_of, make_filter
from railsearch.index.keys import to_integers
from railsearch.index.matching import matched_components
from railsearch.index.memory import check_search
from railsearch.index.strategies import BruteForce, FloorStrategy, Found, Strategy
from railsearch.index.tuned import TunedStrategy
from railsearch.index.tuning import TuningReport, tune
from railsearch.kernels import RowFilter, compute_query_parts, has_stable_sides, plain_arithmetic, use_kernel
from railsearch.similarity import NO_USER, QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame

QUERIES_PER_BATCH = 32
"""Queries that are searched at once, so that one value for each query and item fits into memory."""


def search(
    contents: Contents,
    queries: ArrayLike | QueryParts,
    k: int,
    *,
    strategy: Strategy | None,
    exclude: Exclude,
    allow: Allow,
    user_ids: ArrayLike | None,
    pad: bool,
) -> SearchResult:
    """Find the k best items of each query; see `Index.search`."""
    k = check_count(k, name="k")
    corpus = contents.corpus  # a commit during this search does not change what it sees
    check_enough(k, len(corpus.ids))
    tuned = contents.tuned_strategy(k)
    if strategy is None:
        strategy = BruteForce() if tuned is None else tuned.strategy
    check_strategy(strategy)
    if isinstance(queries, QueryParts):
        if user_ids is not None:
            raise InvalidInputError("user_ids was given with ready parts; give them to query_parts instead.")
        check_parts(queries, contents.query_form, name="query", models=contents.models)
    else:
        queries = as_embeddings(queries, name="queries", shape=corpus.similarity.query_shape)
    users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))
    row_filter = make_filter(corpus, exclude, allow, num_queries=len(queries), k=k, pad=pad)
    found = find(corpus, queries, k, strategy, row_filter, users=users)
    is_filtered = exclude is not None or allow is not None
    result = _result(corpus, found, None if tuned is None else tuned.recall_of(strategy, is_filtered=is_filtered))
    return dataclasses.replace(result, locate=locator(corpus, queries, users)) if corpus.has_metadata else result


def locator(corpus: Corpus, queries: Tensor | QueryParts, users: Tensor | None) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function that finds the component of an item which contributed most to its score for a query."""

    @plain_arithmetic()
    def locate(rows: Tensor, ids: Tensor) -> Tensor:
        with use_kernel(corpus.wanted_kernel):
            parts = as_query_parts(corpus.similarity, corpus.like, queries, users)
        return matched_components(corpus, parts, rows, ids)  # (n,)

    return locate


def check_enough(k: int, num_items: int) -> None:
    """Refuse a k that is greater than the number of items."""
    if k > num_items:
        raise NotEnoughItemsError(f"k is {k} but the index holds {num_items} items; ask for k <= {num_items}.")


def check_strategy(strategy: object) -> None:
    """Refuse a value that is not a strategy."""
    # isinstance with a Protocol would cost as much as the search of a small index.
    if isinstance(strategy, type) or not callable(getattr(strategy, "find_rows", None)):
        raise InvalidInputError(f"strategy is {strategy!r}; give a strategy such as BruteForce().")


def find(
    corpus: Corpus,
    queries: Tensor | QueryParts,
    k: int,
    strategy: Strategy,
    row_filter: RowFilter | None,
    *,
    users: Tensor | None = None,
    floor: Tensor | None = None,
) -> Found:
    """Find the k best rows of checked queries, batch by batch.

    Args:
        corpus: at least k items.
        queries: embeddings or parts.
        k: the number of rows to return.
        strategy: how to search.
        row_filter: hides rows.
        users: one user id for each query.
        floor: scores (B,) that k items elsewhere reach, for a strategy that takes a floor.
    """
    check_search(corpus, strategy, len(queries), k, queries_per_batch=QUERIES_PER_BATCH)
    batches = []
    for first in range(0, max(1, len(queries)), QUERIES_PER_BATCH):
        last = first + QUERIES_PER_BATCH
        own_filter = None if row_filter is None else row_filter.of_queries(first, last)
        with use_kernel(corpus.wanted_kernel):
            own_users = None if users is None else users[first:last]
            query_parts = as_query_parts(corpus.similarity, corpus.like, queries[first:last], own_users)
            if floor is None:
                batches.append(strategy.find_rows(corpus, query_parts, k, own_filter))
            else:
                assert isinstance(strategy, FloorStrategy)
                batches.append(strategy.find_rows(corpus, query_parts, k, own_filter, floor=floor[first:last]))
    return batches[0] if len(batches) == 1 else _joined(batches)


def metadata_of(corpus: Corpus, ids: Tensor) -> "DataFrame":
    """Return the metadata of ids (n,) of live items, one row for each; read from disk now, unless it was before."""
    frame = corpus.frame
    assert frame is not None
    return frame[corpus.rows[torch.searchsorted(corpus.ids, ids)].cpu().numpy()]


def find_allowed(corpus: Corpus, allow: Allow) -> Tensor:
    """Return the ids (A,) of the items that a filter allows, ascending; see `Index.allowed_ids`."""
    ids: Tensor = torch.unique(corpus.row_ids[allowed_rows_of(allow, corpus)].cpu())  # (A,)
    return ids


def tune_strategy(
    contents: Contents,
    sample_queries: ArrayLike,
    k: int,
    target_recall: float,
    confidence: float,
    *,
    user_ids: ArrayLike | None,
    show_progress: bool | None,
) -> TuningReport:
    """Choose a strategy for a k, and store it with the contents; see `Index.tune`."""
    version = contents.version
    report = measure_strategies(
        contents, sample_queries, k, target_recall, confidence, user_ids=user_ids, show_progress=show_progress
    )
    remember_choice(contents, report, version=version)
    return report


def remember_choice(contents: Contents, report: TuningReport, *, version: int) -> None:
    """Store the strategy that was chosen, and the version on which it was measured."""
    bound = None if report.is_exact else report.guaranteed_recall
    measured = None if bound is None else ExpectedRecall(bound, report.confidence, version)
    contents.remember(report.k, TunedStrategy(report.chosen, measured))


def measure_strategies(
    contents: Contents,
    sample_queries: ArrayLike,
    k: int,
    target_recall: float,
    confidence: float,
    *,
    user_ids: ArrayLike | None,
    show_progress: bool | None,
) -> TuningReport:
    """Choose a strategy for a k, and store nothing."""
    k = check_count(k, name="k")
    corpus = contents.corpus
    queries = as_embeddings(sample_queries, name="sample_queries", shape=corpus.similarity.query_shape)
    users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))

    @plain_arithmetic()
    def search_with(parts: QueryParts, strategy: Strategy) -> SearchResult:
        return search(contents, parts, k, strategy=strategy, exclude=None, allow=None, user_ids=None, pad=False)

    with use_kernel(corpus.wanted_kernel):
        parts = compute_query_parts(corpus.similarity, queries.to(corpus.like), users)
    return tune(
        search_with,
        parts,
        k=k,
        num_items=len(corpus.ids),
        max_n=corpus.engine.max_n,
        target_recall=check_positive(target_recall, name="target_recall"),
        confidence=check_positive(confidence, name="confidence"),
        show_progress=show_progress,
    )


def explain(corpus: Corpus, query: ArrayLike, item_id: int | str, *, user_id: int | None) -> Explanation:
    """Return the component scores and gate weights behind one score; see `Index.explain`."""
    if not isinstance(item_id, str):
        item_id = check_count(item_id, name="item_id", minimum=0)
    rows = corpus.rows_of(to_integers([item_id], corpus.segments, name="item_id"))  # (1,) or none
    if not len(rows):
        raise InvalidInputError(
            f"item_id is {item_id!r:.80}, which is not among the {len(corpus.ids)} items of this index."
        )
    similarity = corpus.similarity
    queries = as_embeddings(as_tensor(query, "query")[None], name="query", shape=similarity.query_shape)
    users = None if user_id is None else as_user_ids([user_id], count=1)
    with use_kernel(corpus.wanted_kernel):
        parts = as_query_parts(similarity, corpus.like, queries, users)
        score = corpus.kernel.score_candidates(parts, corpus, rows[None])  # (1, 1): the bits that a search returns
    found = similarity.compare(parts, corpus[rows].to(corpus.like.dtype))
    shape = (similarity.num_query_components, similarity.num_item_components)
    return Explanation(
        item_id=item_id,
        score=float(score[0, 0]),
        component_scores=found.component_scores[0, 0].view(shape),
        gate_weights=found.gate_weights[0, 0].view(shape),
    )


@plain_arithmetic()
def stable_query_parts(contents: Contents, queries: ArrayLike, user_ids: ArrayLike | None) -> QueryParts:
    """Return query parts; those of a query do not depend on its neighbours.

    The bits of torch's matrix products depend on their shape. If the native kernels do not know the similarity, all
    batches therefore have one size; rows of zeros fill up the last one.
    """
    corpus = contents.corpus
    given = as_embeddings(queries, name="queries", shape=corpus.similarity.query_shape).to(corpus.like)
    users = None if user_ids is None else as_user_ids(user_ids, count=len(given))
    with use_kernel(corpus.wanted_kernel):
        if has_stable_sides(corpus.similarity, given):
            return as_query_parts(corpus.similarity, corpus.like, given, users)
        num_missing = -len(given) % QUERIES_PER_BATCH
        padded = torch.cat([given, given.new_zeros(num_missing, *given.shape[1:])])
        all_users = None if users is None else torch.cat([users, users.new_full((num_missing,), NO_USER)])
        batches = []
        for first in range(0, len(padded), QUERIES_PER_BATCH):
            rows = slice(first, first + QUERIES_PER_BATCH)
            own_users = None if all_users is None else all_users[rows]
            batches.append(as_query_parts(corpus.similarity, corpus.like, padded[rows].clone(), own_users))
    return joined_parts(batches)[: len(given)]


def joined_parts(batches: Sequence[QueryParts]) -> QueryParts:
    """Return the parts of several batches of queries, one after the other."""
    gates = [parts.gate for parts in batches if parts.gate is not None]
    return QueryParts(torch.cat([parts.components for parts in batches]), torch.cat(gates) if gates else None)


def as_query_parts(
    similarity: Similarity, like: Tensor, queries: Tensor | QueryParts, user_ids: Tensor | None
) -> QueryParts:
    """Return the parts of one batch of queries, with the precision and device of `like`."""
    if isinstance(queries, QueryParts):
        return QueryParts(queries.components.to(like), None if queries.gate is None else queries.gate.to(like))
    users = None if user_ids is None else user_ids.to(like.device)
    parts = compute_query_parts(similarity, queries.to(like), users)
    check_not_lost(queries, parts.components, name="queries")
    return parts


def found_ids(corpus: Corpus, found: Found) -> Tensor:
    """Return the ids (B, K) of the rows that were found; -1 in a place that has no item."""
    # Scores are finite, so minus infinity appears only where exclude and allow left no item.
    return corpus.row_ids[found.rows].masked_fill_(found.scores == -torch.inf, NO_ITEM)


def _result(corpus: Corpus, found: Found, expected_recall: ExpectedRecall | None) -> SearchResult:
    scores = found.scores  # (B, K)

    def lookup(ids: Tensor) -> "DataFrame":
        return metadata_of(corpus, ids)

    return SearchResult(
        ids=found_ids(corpus, found),
        scores=scores.to(torch.float32),
        ceiling=as_float32(found.ceiling, scores[:, -1]),
        num_scored=found.num_scored,
        lookup=lookup if corpus.has_metadata else None,
        has_keys=corpus.has_keys,
        expected_recall=expected_recall,
    )


def _joined(batches: list[Found]) -> Found:
    return Found(
        rows=torch.cat([found.rows for found in batches]),
        scores=torch.cat([found.scores for found in batches]),
        ceiling=torch.cat([found.ceiling for found in batches]),
        num_scored=torch.cat([found.num_scored for found in batches]),
    )
