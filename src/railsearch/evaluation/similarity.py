"""Evaluation of a similarity on fixed embeddings: the ranks of the right items of each query among all items."""

from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from railsearch.evaluation.report import Evaluation
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, as_user_ids, check_count
from railsearch.foundation.pairs import as_pairs
from railsearch.models import rank_pairs
from railsearch.similarity import Similarity, check_similarity

CUTOFFS = (1, 10, 50)


def evaluate(
    similarity: Similarity,
    query_embeddings: ArrayLike,
    item_embeddings: ArrayLike,
    pairs: ArrayLike,
    *,
    seen_pairs: ArrayLike | None = None,
    user_ids: ArrayLike | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
) -> Evaluation:
    """Rank all items for each query, and return HR, NDCG and MRR of its right items, with confidence intervals.

    If a query has several right items, the best-placed one counts, and the others do not count as wrong.

    Args:
        similarity: the similarity to measure: a trained one, or DotProduct for a system as it is.
        query_embeddings: (Q, D), one row for each query or user.
        item_embeddings: (N, D), one row for each item.
        pairs: (M, 2) integers: row of the query, row of an item that is right for it. Queries without a pair are
            ignored.
        seen_pairs: (S, 2) pairs whose items are hidden from their queries, such as the training pairs. An item that is
            both seen and right is ranked.
        user_ids: (Q,), for a similarity with a user table; see MixtureOfLogits.
        cutoffs: the k of HR@k and NDCG@k.

    >>> from railsearch import DotProduct
    >>> queries, items = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 1.0], [1.0, 2.0], [0.0, 1.0]])
    >>> found = evaluate(DotProduct(dim=2, cosine=True), queries, items, pairs=[[0, 0], [1, 1]], cutoffs=[1, 2])
    >>> found.metrics
    {'HR@1': 0.5, 'HR@2': 1.0, 'MRR': 0.75, 'NDCG@2': 0.8154648767857288}
    >>> found.ranks
    tensor([1, 2])
    """
    check_similarity(similarity)
    ks = [check_count(k, name="each of cutoffs") for k in cutoffs]
    like = next(iter(similarity.parameters()), torch.empty(0))
    queries = as_embeddings(query_embeddings, name="query_embeddings", shape=similarity.query_shape).to(like)
    items = as_embeddings(item_embeddings, name="item_embeddings", shape=similarity.item_shape).to(like)
    size = (len(queries), len(items))
    right = as_pairs(pairs, name="pairs", size=size).to(like.device)
    seen = None if seen_pairs is None or _is_empty(seen_pairs) else as_pairs(seen_pairs, name="seen_pairs", size=size)
    users = _users_of(similarity, user_ids, len(queries))
    with _in_eval_mode(similarity):
        ranks = rank_pairs(
            similarity,
            queries,
            items,
            right,
            seen=None if seen is None else seen.to(like.device),
            user_ids=None if users is None else users.to(like.device),
        )
    return Evaluation.of_ranks(
        ranks,
        cutoffs=ks,
        protocol=describe_protocol(len(ranks), len(items), hides_seen=seen is not None),
        query_rows=torch.unique(right[:, 0]),
    )


def describe_protocol(num_queries: int, num_items: int, *, hides_seen: bool) -> str:
    """Return a sentence that describes how the queries are ranked."""
    hidden = ", except those that the query is known to have seen" if hides_seen else ""
    return (
        f"{num_queries:,} queries, ranked against all {num_items:,} items{hidden}; the best-placed right item of each "
        "query counts"
    )


def _is_empty(pairs: ArrayLike) -> bool:
    return isinstance(pairs, Sized) and len(pairs) == 0


def _users_of(similarity: Similarity, user_ids: ArrayLike | None, num_queries: int) -> Tensor | None:
    if similarity.takes_user_ids and user_ids is None:
        raise InvalidInputError("the similarity has a user table but user_ids is None; give one id for each query.")
    if user_ids is not None and not similarity.takes_user_ids:
        raise InvalidInputError("user_ids was given but the similarity has no user table; omit user_ids.")
    return None if user_ids is None else as_user_ids(user_ids, count=num_queries)


@contextmanager
def _in_eval_mode(similarity: Similarity) -> Iterator[None]:
    """Turn dropout off, and restore the mode afterwards."""
    if not (isinstance(similarity, nn.Module) and similarity.training):
        yield
        return
    module: nn.Module = similarity
    module.eval()
    try:
        yield
    finally:
        module.train()
