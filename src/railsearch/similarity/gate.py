"""The gate: the weight of each component pair for one query and one item (pi of equation 1)."""

from collections import OrderedDict
from collections.abc import Collection
from enum import StrEnum

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice

DROPPED = -1e4
"""A logit whose weight is zero beside any other; the logits of a gate are far above it."""


class GateInput(StrEnum):
    """An input of the gate."""

    QUERY = "query"
    ITEM = "item"
    PAIR = "pair"
    """The component scores of the pair itself."""


class GateActivation(StrEnum):
    """The activation of the gate's sum before the softmax."""

    SILU = "silu"
    IDENTITY = "identity"


class Gate(nn.Module):
    """Weights pi = softmax(act(gate_q(q) * gate_x(x) + MLP(l))), which sum to 1 over the P pairs.

    Any of the three inputs may be omitted; with none the weights are uniform and the score is the mean
    component score. The shares of the query and of the item are computed once, on their own sides.
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
                    activation=nn.SiLU(inplace=True),  # saves one write of the widest layer
                    output=nn.Linear(hidden_dim, num_pairs, bias=has_bias),
                )
            )

        self.query = network(query_dim, has_bias=False) if GateInput.QUERY in inputs else None
        self.item = network(item_dim, has_bias=False) if GateInput.ITEM in inputs else None
        self.pair = network(num_pairs, has_bias=True) if GateInput.PAIR in inputs else None

    def check_sides(self, query_gate: Tensor | None, item_gate: Tensor | None) -> None:
        """Check that the parts were computed with a gate like this one."""
        for side, network, gate in (("query", self.query, query_gate), ("item", self.item, item_gate)):
            if (network is None) != (gate is None):
                needs, has = ("no", "one") if network is None else ("a", "none")
                raise InvalidInputError(
                    f"this similarity has {needs} {side} gate but the {side} parts have {has}; "
                    "compute the parts with this similarity."
                )

    def forward(self, component_scores: Tensor, query_gate: Tensor | None, item_gate: Tensor | None) -> Tensor:
        """Return the weights of component pairs; the sides' gates must broadcast to component_scores (B, N, P)."""
        self.check_sides(query_gate, item_gate)
        logits = torch.zeros_like(component_scores) if self.pair is None else self.pair(component_scores)  # (B, N, P)
        if query_gate is not None and item_gate is not None:
            logits = torch.addcmul(logits, query_gate, item_gate)  # (B, N, P)
        elif query_gate is not None:
            logits = logits + query_gate  # (B, N, P)
        elif item_gate is not None:
            logits = logits + item_gate  # (B, N, P)
        if self.activation is GateActivation.SILU:
            logits = F.silu(logits, inplace=True)
        if self.training and self.dropout:
            logits = drop(logits, draw_dropped(logits, self.dropout))
        return F.softmax(logits, dim=-1)  # (B, N, P)


def draw_dropped(like: Tensor, rate: float) -> Tensor:
    """Choose at random which values are dropped, from 16 random bits each; four values share one fast draw."""
    bits = torch.empty((like.numel() + 3) // 4, dtype=torch.int64, device=like.device).random_(-(2**63), None)
    threshold = min(round(rate * 2**16), 2**16 - 1) - 2**15
    return (bits.view(torch.int16)[: like.numel()] < threshold).view(like.shape)


def drop(logits: Tensor, is_dropped: Tensor) -> Tensor:
    """Drop component pairs before the softmax, in place, so that the weights of the rest sum to 1.

    Dropping weights and scaling the rest up would have the same effect. If all pairs are dropped, all have the same
    weight.
    """
    return logits.masked_fill_(is_dropped, DROPPED)


def as_gate_inputs(names: Collection[GateInput | str]) -> frozenset[GateInput]:
    """Check the inputs of a gate."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidInputError(f"gate_inputs is {names!r}; give a list, such as ['query', 'item', 'pair'].")
    return frozenset(as_choice(GateInput, name, name="gate_inputs") for name in names)
