"""The sequential model: a sequence encoder turns a history into a query, and a similarity compares it with items."""

import torch
from torch import Tensor, nn

from railsearch.data import Interactions
from railsearch.encoders import Histories, SequenceEncoder
from railsearch.foundation.errors import InvalidInputError
from railsearch.kernels import compute_item_parts, compute_query_parts
from railsearch.similarity import ItemParts, QueryParts, Similarity

HISTORIES_PER_BATCH = 128
"""Histories that are encoded at once outside of training."""


class SequentialModel(nn.Module):
    """A sequence encoder, whose outputs are queries, and the similarity that compares them with its items."""

    def __init__(self, *, encoder: SequenceEncoder, similarity: Similarity) -> None:
        super().__init__()
        assert isinstance(encoder, nn.Module)
        assert isinstance(similarity, nn.Module)
        if similarity.query_shape != (encoder.dim,) or similarity.item_shape != (encoder.dim,):
            raise InvalidInputError(
                f"the encoder returns embeddings of {encoder.dim} values but the similarity takes queries of "
                f"{similarity.query_shape} and items of {similarity.item_shape}; use one size for both."
            )
        self.encoder: SequenceEncoder = encoder
        self.similarity: Similarity = similarity

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.encoder.parameters()).device

    @torch.no_grad()
    def encode(self, histories: Histories) -> Tensor:
        """Return one query embedding (B, D) for each history: the output of its last position."""
        moved = histories.to(self.device)
        return torch.cat([self.encoder(batch)[batch.last_positions] for batch in moved.split(HISTORIES_PER_BATCH)])

    def query_parts(self, histories: Histories, users: Tensor) -> QueryParts:
        """Return the query side of each history; users (B,) are rows of a user table, negative for unknown users."""
        user_ids = users if self.similarity.takes_user_ids else None
        return compute_query_parts(self.similarity, self.encode(histories), user_ids)

    def item_parts(self) -> ItemParts:
        """Return the item side of every item."""
        return compute_item_parts(self.similarity, self.encoder.embed_items())


def histories_between(interactions: Interactions, starts: Tensor, ends: Tensor, *, max_length: int) -> Histories:
    """Return histories of the events in rows [start, end), each cut to its last `max_length` events.

    The row `end` holds the event to predict: its time is the time of the query for the next item.

    Args:
        interactions: events in the order of users and times.
        starts: (B,) first row of each history.
        ends: (B,) row after the last one of each history.
        max_length: largest number of events that each history keeps.
    """
    lengths = (ends - starts).clamp(max=max_length)  # (B,)
    rows = consecutive_rows(ends - lengths, lengths)  # (E,)
    items = interactions.items[rows]  # (E,)
    if not interactions.has_times:  # as in `recommend` with lists of items: all events have the same time
        return Histories(items, torch.zeros_like(items), torch.zeros_like(items), lengths)
    return Histories(items, interactions.timestamps[rows], interactions.timestamps[rows + 1], lengths)


def consecutive_rows(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return the rows (E,) of several stretches, one after the other: `lengths[i]` rows from `starts[i]` on.

    >>> consecutive_rows(torch.tensor([10, 20]), torch.tensor([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    first = lengths.cumsum(dim=0) - lengths  # (B,)
    return torch.arange(int(lengths.sum())) + (starts - first).repeat_interleave(lengths)
