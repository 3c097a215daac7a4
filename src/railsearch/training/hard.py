"""Hard negatives: the best items of some examples of a batch under the model as it is."""

import torch
from torch import Generator, Tensor

from railsearch.kernels import RowFilter, choose_kernel, compute_item_parts, compute_query_parts
from railsearch.similarity import Similarity
from railsearch.training.negatives import RightPairs

MOST_QUERIES = 64
"""Examples of a batch whose best items are searched."""


@torch.no_grad()
def find_hard_items(
    similarity: Similarity,
    queries: Tensor,
    items: Tensor,
    *,
    count: int,
    right: RightPairs,
    owners: Tensor,
    user_ids: Tensor | None,
    generator: Generator,
) -> Tensor:
    """Return distinct rows (h,), ascending, of at most `count` items that are among the best of some of the queries.

    They depend on the weights, the queries and the generator alone, so that a run which resumes finds the same ones.

    Args:
        similarity: the similarity in training; it searches in eval mode, without dropout.
        queries: (E, D) embeddings of the examples.
        items: (N, D) embeddings of all items.
        count: most items to return; each of up to 64 queries contributes as many.
        right: items that are right for each owner, which are not found for its queries.
        owners: (E,) owner of each query, such as its user.
        user_ids: (E,) rows of the similarity's user table, if it has one.
        generator: draws the queries, on the CPU.
    """
    if count < 1:
        return owners[:0]
    chosen = torch.randperm(len(queries), generator=generator)[:MOST_QUERIES]  # (S,)
    chosen = chosen[: max(1, count)].sort().values.to(queries.device)
    per_query = min(len(items), max(1, count // len(chosen)))
    was_training = similarity.training
    similarity.train(False)
    try:
        query_parts = compute_query_parts(similarity, queries[chosen], None if user_ids is None else user_ids[chosen])
        item_parts = compute_item_parts(similarity, items)
        scores, rows = choose_kernel(similarity, queries.device).top_k(
            query_parts, item_parts, per_query, RowFilter(*right.of(owners[chosen]))
        )  # (S, k), (S, k)
    finally:
        similarity.train(was_training)
    found: Tensor = torch.unique(rows[scores > -torch.inf])  # (h,)
    return found
