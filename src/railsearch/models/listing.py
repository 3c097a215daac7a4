"""The best items of held-out queries with their scores, for ranked lists that other tools read."""

import torch
from torch import Tensor

from railsearch.data import HeldOut, Interactions, Questions
from railsearch.kernels import NO_ROW, RowFilter, choose_kernel, plain_arithmetic
from railsearch.models.ranking import QUESTIONS_PER_BATCH, held_out_batches
from railsearch.models.sequential import SequentialModel
from railsearch.models.text import TextModel
from railsearch.similarity import ItemParts


@torch.no_grad()
def list_held_out(
    model: SequentialModel, interactions: Interactions, held_out: HeldOut, k: int, *, user_rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the k best rows (n, K) of each user and their scores (n, K), in the order of `rank_held_out`.

    Items of the history are omitted, except the held-out item itself, which is ranked even if the user had it before.
    If fewer than k items are left, the rest of the rows are NO_ROW.

    Args:
        model: the model that ranks.
        interactions: the events that the histories are part of.
        held_out: the users, with the ends of their histories.
        k: the length of a list, at most the number of all items.
        user_rows: as in `rank_held_out`.
    """
    item_parts = model.item_parts()
    kernel = choose_kernel(model.similarity, model.device)
    lists = []
    for query_parts, targets, seen in held_out_batches(model, interactions, held_out, user_rows):
        is_other = seen.rows != targets[seen.queries]  # (E,)
        others = RowFilter(seen.queries[is_other], seen.rows[is_other])
        with plain_arithmetic():
            lists.append(kernel.top_k(query_parts, item_parts, k, others))  # (b, K) each
    return _joined(lists)


@torch.no_grad()
def list_passages(model: TextModel, questions: Questions, item_parts: ItemParts, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best rows (Q, K) of passages for each question, and their scores (Q, K)."""
    device = item_parts.components.device
    kernel = choose_kernel(model.similarity, device)
    lists = []
    for first in range(0, len(questions), QUESTIONS_PER_BATCH):
        query_parts = model.query_parts(questions.texts[first : first + QUESTIONS_PER_BATCH])
        with plain_arithmetic():
            lists.append(kernel.top_k(query_parts, item_parts, k, RowFilter.nothing(device=device)))  # (b, K) each
    return _joined(lists)


def _joined(lists: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return rows and scores of all batches, on the CPU."""
    scores, rows = (torch.cat(parts).cpu() for parts in zip(*lists, strict=True))
    return rows.masked_fill(scores.isneginf(), NO_ROW), scores
