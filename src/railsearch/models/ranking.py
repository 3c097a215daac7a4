"""The ranks of held-out items: validation and evaluation measure a model by them (the paper's section 4)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from railsearch.data import HeldOut, Interactions, Questions
from railsearch.kernels import (
    NO_ROW,
    RowFilter,
    best_ranks,
    choose_kernel,
    compute_item_parts,
    compute_query_parts,
    plain_arithmetic,
    target_ranks,
)
from railsearch.models.sequential import HISTORIES_PER_BATCH, SequentialModel, consecutive_rows, histories_between
from railsearch.models.text import TextModel
from railsearch.similarity import ItemParts, QueryParts, Similarity

ITEM_CUTOFFS = (1, 10, 50, 200)
"""The k of HR@k and NDCG@k of a recommender."""
PASSAGE_CUTOFFS = (1, 10, 100)
"""The k of HR@k of a text model."""
QUESTIONS_PER_BATCH = 1024
"""Questions that are encoded and ranked at once."""


@torch.no_grad()
def rank_held_out(
    model: SequentialModel, interactions: Interactions, held_out: HeldOut, *, user_rows: Tensor | None = None
) -> Tensor:
    """Return the rank (n,) of each held-out item among all items, except the other items of the user's history.

    A held-out item that is also in the history is ranked like any other.

    Args:
        model: the model that ranks.
        interactions: the events that the histories are part of.
        held_out: the items to rank, each with its user and the end of its history.
        user_rows: (U,) row of the user table for each user of the interactions, negative for unknown users; by
            default, user u has row u, as in training.
    """
    item_parts = model.item_parts()
    return torch.cat(
        [
            target_ranks(model.similarity, query_parts, item_parts, targets, row_filter=seen)
            for query_parts, targets, seen in held_out_batches(model, interactions, held_out, user_rows)
        ]
    ).cpu()


@torch.no_grad()
def recommend_held_out(
    model: SequentialModel,
    interactions: Interactions,
    held_out: HeldOut,
    k: int,
    *,
    user_rows: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the rank (n,) of each held-out item as `rank_held_out` does, and the user's k best rows (n, K).

    Items of the history are not recommended. If fewer than k others exist, the rest of the rows are NO_ROW.

    Args:
        model: the model that ranks.
        interactions: the events that the histories are part of.
        held_out: the items to rank.
        k: the number of items for each user, at most the number of all items.
        user_rows: as in `rank_held_out`.
    """
    item_parts = model.item_parts()
    kernel = choose_kernel(model.similarity, model.device)
    ranks, best = [], []
    for query_parts, targets, seen in held_out_batches(model, interactions, held_out, user_rows):
        ranks.append(target_ranks(model.similarity, query_parts, item_parts, targets, row_filter=seen, kernel=kernel))
        with plain_arithmetic():
            scores, rows = kernel.top_k(query_parts, item_parts, k, seen)  # (b, K)
        best.append(rows.masked_fill(scores.isneginf(), NO_ROW))
    return torch.cat(ranks).cpu(), torch.cat(best).cpu()


def held_out_batches(
    model: SequentialModel, interactions: Interactions, held_out: HeldOut, user_rows: Tensor | None
) -> Iterator[tuple[QueryParts, Tensor, RowFilter]]:
    """Yield query parts, held-out items (b,) and a filter that hides the history, for each batch of users."""
    offsets = interactions.offsets  # (U + 1,)
    for rows in torch.split(torch.arange(len(held_out.users)), 8 * HISTORIES_PER_BATCH):
        users, ends = held_out.users[rows], held_out.history_ends[rows]  # (b,)
        starts = offsets[users]  # (b,)
        histories = histories_between(interactions, starts, ends, max_length=model.encoder.max_length)
        seen = RowFilter(
            torch.arange(len(users)).repeat_interleave(ends - starts).to(model.device),
            interactions.items[consecutive_rows(starts, ends - starts)].to(model.device),
        )
        owners = users if user_rows is None else user_rows[users]  # (b,)
        yield model.query_parts(histories, owners.to(model.device)), held_out.items[rows].to(model.device), seen


@torch.no_grad()
def rank_questions(
    model: TextModel, questions: Questions, item_parts: ItemParts, *, rows: Tensor | None = None
) -> Tensor:
    """Return the rank (Q,) of the best-ranked right passage of each question, among the passages of `item_parts`.

    Args:
        model: the model that ranks.
        questions: questions with their right passages.
        item_parts: item side of the passages to rank.
        rows: (n,) rows of these passages in the data set, ascending; by default, item_parts holds all passages.
    """
    device = item_parts.components.device
    ranks = []
    for batch in torch.split(torch.arange(len(questions)), QUESTIONS_PER_BATCH):
        first, last = int(batch[0]), int(batch[-1]) + 1
        pairs = questions.pairs[(questions.pairs[:, 0] >= first) & (questions.pairs[:, 0] < last)]  # (m, 2)
        owners, targets = pairs.t().contiguous()  # (m,)
        places = targets if rows is None else torch.searchsorted(rows, targets)  # (m,)
        query_parts = model.query_parts(questions.texts[first:last])
        found = best_ranks(
            model.similarity, query_parts, item_parts, (owners - first).to(device), places.to(device)
        )  # (b,)
        ranks.append(found.cpu())
    return torch.cat(ranks)


@torch.no_grad()
def rank_pairs(
    similarity: Similarity,
    queries: Tensor,
    items: Tensor,
    pairs: Tensor,
    *,
    seen: Tensor | None = None,
    user_ids: Tensor | None = None,
) -> Tensor:
    """Return the rank (q,) of the best-placed right item of each distinct query in `pairs`, in the order of query rows.

    Args:
        similarity: the similarity that ranks; in eval mode.
        queries: (Q, D) query embeddings.
        items: (N, D) item embeddings; all are ranked.
        pairs: (M, 2) query row, row of a right item.
        seen: (S, 2) pairs whose items are hidden from their queries, such as training pairs.
        user_ids: (Q,) for a similarity with a user table.
    """
    keys = torch.unique(pairs[:, 0] * len(items) + pairs[:, 1])  # (m,) by query, then item
    rows, owners = torch.unique_consecutive(keys // len(items), return_inverse=True)  # (q,), (m,)
    users = None if user_ids is None else user_ids[rows]  # (q,)
    return best_ranks(
        similarity,
        compute_query_parts(similarity, queries[rows], users),
        compute_item_parts(similarity, items),
        owners,
        keys % len(items),
        row_filter=None if seen is None else _seen_items(seen, rows),
    )


def _seen_items(pairs: Tensor, queries: Tensor) -> RowFilter:
    """Return a filter that hides from each of these query rows (q,), ascending, the items that it is paired with."""
    places = torch.searchsorted(queries, pairs[:, 0].contiguous()).clamp_max(len(queries) - 1)  # (S,)
    is_asked = queries[places] == pairs[:, 0]  # (S,)
    places, order = places[is_asked].sort()  # (s,)
    return RowFilter(places, pairs[is_asked, 1][order])
