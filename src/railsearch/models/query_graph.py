"""The query side of a sequential model as one module of plain operations: padded histories in, query parts out.

`SequentialModel` encodes histories without padding, by operations that only run here. This module computes the same
with operations that other runtimes know.
"""

import copy

import torch
from torch import Tensor, nn

from railsearch.encoders import HSTU
from railsearch.encoders.sequence.item_table import ItemTable
from railsearch.encoders.sequence.time_thresholds import time_thresholds
from railsearch.models.sequential import SequentialModel
from railsearch.similarity.fingerprints import leave_unnamed

EMBEDDINGS, COMPONENTS, GATE = "embeddings", "components", "gate"
PADDED = frozenset({"items", "times"})
"""Inputs with a value for each event; the others have one for each history."""


class QueryGraph(nn.Module):
    """A frozen copy of the query side of a model, in fp32 on the CPU.

    The inputs are:

    - items (B, n) int64: rows of the item table, each history oldest first from the left; padding may be any row.
    - lengths (B,) int64: events of each history, from 1 to n; n is at most max_length.
    - times (B, n) int64: seconds of the events. Only if the encoder uses times.
    - request_times (B,) int64: seconds of the request. Only if the encoder uses times.
    - user_rows (B,) int64: rows of the user table, -1 for unknown users. Only if the similarity has a user table.

    The outputs are the query embeddings (B, D), their components (B, Pq, d), and their gate (B, P) if there is one.
    """

    def __init__(self, model: SequentialModel) -> None:
        super().__init__()
        own = copy.deepcopy(model).cpu().float().eval().requires_grad_(requires_grad=False)
        table = ItemTable(num_items=own.encoder.num_items, dim=own.encoder.dim)  # features are projected once, here
        table.weight = nn.Parameter(own.encoder.embed_items().detach().clone(), requires_grad=False)
        own.encoder.item_table = table
        leave_unnamed(own.similarity)  # a fingerprint reads all weights, which a traced module does not have
        self.encoder = own.encoder
        self.similarity = own.similarity
        self.takes_times = isinstance(own.encoder, HSTU)
        time_thresholds()  # found now and remembered, so that no trace of the graph holds the search for them
        self.takes_users = own.similarity.takes_user_ids
        like = torch.zeros(1, *model.similarity.query_shape)
        self.has_gate = self.similarity.query_parts(like).gate is not None

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        times = ("times", "request_times") if self.takes_times else ()
        return ("items", "lengths", *times, *(("user_rows",) if self.takes_users else ()))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return (EMBEDDINGS, COMPONENTS, *((GATE,) if self.has_gate else ()))

    def forward(
        self,
        items: Tensor,
        lengths: Tensor,
        times: Tensor | None = None,
        request_times: Tensor | None = None,
        user_rows: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return embeddings, components, and the gate if there is one."""
        last = lengths - 1  # (B,)
        if times is None or request_times is None:
            times = next_times = torch.zeros_like(items)  # (B, n)
        else:
            positions = torch.arange(items.shape[1])  # (n,)
            following = times.index_select(1, (positions + 1).clamp(max=items.shape[1] - 1))  # (B, n)
            next_times = torch.where(positions == last[:, None], request_times[:, None], following)  # (B, n)
        events = self.encoder.encode_padded(items, times, next_times)  # (B, n, D)
        places = last[:, None, None].expand(-1, 1, events.shape[-1])  # (B, 1, D)
        queries = events.gather(1, places).squeeze(1)  # (B, D)
        parts = self.similarity.query_parts(queries, user_ids=user_rows)
        return (queries, parts.components) if parts.gate is None else (queries, parts.components, parts.gate)

    def examples(self) -> dict[str, Tensor]:
        """Return inputs of two histories with padding, by name; they show types and numbers of dimensions.

        Each is a tensor of its own: an exporter takes one tensor that is given twice for one input.
        """
        return {
            name: torch.zeros(2, 3, dtype=torch.int64) if name in PADDED else torch.tensor([3, 2])
            for name in self.input_names
        }
