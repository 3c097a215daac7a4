"""The gate: how much each component pair counts for this query and this item (pi of equation 1)."""

from collections import OrderedDict
from enum import StrEnum

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from railsearch.errors import InvalidInputError


class GateInput(StrEnum):
    """What the gate may look at."""

    QUERY = "query"
    ITEM = "item"
    PAIR = "pair"
    """The component scores of the pair itself."""


class GateActivation(StrEnum):
    """What the gate's sum goes through before the softmax."""

    SILU = "silu"
    IDENTITY = "identity"


class Gate(nn.Module):
    """Weights pi = softmax(act(gate_q(q) * gate_x(x) + MLP(l))), which sum to 1 over the P pairs.

    Any of the three inputs may be left out; with none the weights are uniform and the score is the mean
    component score. The query's and the item's share are computed on their own side, once.
    """

    def __init__(
        self,
        *,
        num_pairs: int,
        query_dim: int,
        item_dim: int,
        inputs: frozenset[GateInput],
        hidden_dim: int,
        activation: GateActivation,
        dropout: float,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = dropout

        def network(input_dim: int, *, has_bias: bool) -> nn.Sequential:
            return nn.Sequential(
                OrderedDict(
                    hidden=nn.Linear(input_dim, hidden_dim),
                    activation=nn.SiLU(inplace=True),  # one write less of the widest layer there is
                    output=nn.Linear(hidden_dim, num_pairs, bias=has_bias),
                )
            )

        self.query = network(query_dim, has_bias=False) if GateInput.QUERY in inputs else None
        self.item = network(item_dim, has_bias=False) if GateInput.ITEM in inputs else None
        self.pair = network(num_pairs, has_bias=True) if GateInput.PAIR in inputs else None

    def forward(self, component_scores: Tensor, query_gate: Tensor | None, item_gate: Tensor | None) -> Tensor:
        """Weigh the pairs; the sides' gates must broadcast against component_scores (B, N, P)."""
        for side, network, gate in (("query", self.query, query_gate), ("item", self.item, item_gate)):
            if (network is None) != (gate is None):
                needs, has = ("no", "one") if network is None else ("a", "none")
                raise InvalidInputError(
                    f"this similarity has {needs} {side} gate but the {side} parts have {has}; "
                    "make the parts with this similarity."
                )
        logits = torch.zeros_like(component_scores) if self.pair is None else self.pair(component_scores)  # (B, N, P)
        if query_gate is not None and item_gate is not None:
            logits = torch.addcmul(logits, query_gate, item_gate)  # (B, N, P)
        elif query_gate is not None:
            logits = logits + query_gate  # (B, N, P)
        elif item_gate is not None:
            logits = logits + item_gate  # (B, N, P)
        if self.activation is GateActivation.SILU:
            logits = F.silu(logits, inplace=True)
        weights = F.softmax(logits, dim=-1)  # (B, N, P)
        return self._drop(weights) if self.training and self.dropout else weights

    def _drop(self, weights: Tensor) -> Tensor:
        """Drop weights at random and let the rest sum to 1 again."""
        kept = F.dropout(weights, self.dropout)  # (B, N, P)
        total = kept.sum(dim=-1, keepdim=True)  # (B, N, 1)
        # Where next to nothing is left, scaling it up would blow up the gradient: keep all weights there.
        is_empty = total < 1e-6
        return torch.where(is_empty, weights, kept / total.masked_fill(is_empty, 1.0))  # (B, N, P)
