"""The mixture and its gradient in one function, with fewer passes over memory than autograd: most of training time."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from railsearch.similarity.gate import Gate, GateActivation, draw_dropped, drop


def fused_mixture(gate: Gate, component_scores: Tensor, query_gate: Tensor | None, item_gate: Tensor | None) -> Tensor:
    """Return the scores (B, N) of component scores (B, N, P) under a gate with the pair input, as `Gate` computes them.

    The gates of the sides are (B, 1, P) and (N, P) or (B, N, P); either may be None.
    """
    assert gate.pair is not None
    dropped = draw_dropped(component_scores, gate.dropout) if gate.training and gate.dropout else None
    hidden, output = gate.pair.hidden, gate.pair.output
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    has_silu = gate.activation is GateActivation.SILU
    scores: Tensor = _Mixture.apply(  # type: ignore[no-untyped-call]
        component_scores.contiguous(), query_gate, item_gate, hidden.weight, hidden.bias, output.weight, output.bias,
        dropped, has_silu,
    )  # fmt: skip
    return scores


class _Mixture(torch.autograd.Function):
    """phi = <pi, l> with pi = softmax(act(gate_q * gate_x + W2 silu(W1 l + b1) + b2))."""

    @staticmethod
    def forward(  # noqa: PLR0917  (autograd passes all by position)
        ctx: Any,
        scores: Tensor,
        query_gate: Tensor | None,
        item_gate: Tensor | None,
        weight_1: Tensor,
        bias_1: Tensor,
        weight_2: Tensor,
        bias_2: Tensor,
        dropped: Tensor | None,
        has_silu: bool,
    ) -> Tensor:
        rows = scores.view(-1, scores.shape[-1])  # (R, P)
        hidden = torch.addmm(bias_1, rows, weight_1.T)  # (R, H)
        hidden_sigmoid = hidden.sigmoid()  # (R, H)
        hidden *= hidden_sigmoid
        logits = torch.addmm(bias_2, hidden, weight_2.T).view_as(scores)  # (B, N, P)
        if query_gate is not None and item_gate is not None:
            logits.addcmul_(query_gate, item_gate)
        elif query_gate is not None:
            logits += query_gate
        elif item_gate is not None:
            logits += item_gate
        slope = None
        if has_silu:
            sigmoid = logits.sigmoid()  # (B, N, P)
            slope = torch.addcmul(logits, logits, sigmoid, value=-1).add_(1).mul_(sigmoid)  # (B, N, P) of SiLU
            logits *= sigmoid
        if dropped is not None:
            drop(logits, dropped)
        weights = logits.softmax(dim=-1)  # (B, N, P)
        mixed: Tensor = torch.linalg.vecdot(weights, scores)  # (B, N)
        ctx.save_for_backward(
            scores, query_gate, item_gate, weight_1, weight_2, hidden, hidden_sigmoid, slope, weights, mixed
        )
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scores, query_gate, item_gate, weight_1, weight_2, hidden, hidden_sigmoid, slope, weights, mixed) = (
            ctx.saved_tensors
        )
        to_scores = weights * upstream[..., None]  # (B, N, P) what reaches the component scores themselves
        to_logits = (scores - mixed[..., None]).mul_(to_scores)  # (B, N, P) what was dropped has weight 0
        if slope is not None:
            to_logits *= slope
        to_query_gate = to_item_gate = None
        if query_gate is not None:
            to_query_gate = to_logits if item_gate is None else to_logits * item_gate  # (B, N, P)
            to_query_gate = to_query_gate.sum(dim=1, keepdim=True)  # (B, 1, P)
        if item_gate is not None:
            to_item_gate = to_logits if query_gate is None else to_logits * query_gate  # (B, N, P)
            to_item_gate = to_item_gate.sum(dim=0) if item_gate.ndim == 2 else to_item_gate.clone()

        rows = scores.view(-1, scores.shape[-1])  # (R, P)
        to_output = to_logits.view_as(rows)  # (R, P)
        to_hidden = to_output @ weight_2  # (R, H)
        hidden_slope = torch.addcmul(hidden, hidden, hidden_sigmoid, value=-1).add_(hidden_sigmoid)  # (R, H) of SiLU
        to_hidden *= hidden_slope
        to_scores.view_as(rows).addmm_(to_hidden, weight_1)
        return (
            to_scores, to_query_gate, to_item_gate, to_hidden.T @ rows, to_hidden.sum(dim=0),
            to_output.T @ hidden, to_output.sum(dim=0), None, None,
        )  # fmt: skip
