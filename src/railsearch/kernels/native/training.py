"""The mixture of training and its gradient in C++: no layer of the gate's network is kept in memory."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from railsearch.kernels.native.library import chosen_isa, is_available, library
from railsearch.similarity.gate import Gate, GateActivation


def has_training() -> bool:
    """Return whether the native kernels were compiled with those of training, which an older build has not."""
    return is_available() and hasattr(library, "mix_backward")


def can_train(gate: Gate, *tensors: Tensor | None) -> bool:
    """Return whether `native_mixture` can compute with this gate and these tensors: all in fp32 on a CPU."""
    given = [*tensors, *gate.parameters()]
    return (
        has_training()
        and gate.pair is not None
        and all(each is None or (each.dtype == torch.float32 and each.device.type == "cpu") for each in given)
    )


def native_mixture(gate: Gate, products: Tensor, query_gate: Tensor | None, item_gate: Tensor | None) -> Tensor:
    """Return the scores (B, N) of component products (B, Pq, N, Px) under a gate with the pair input.

    The gates of the sides are (B, P) and (N, P) or (B, N, P); either may be None. The seed of dropout comes from
    torch's generator.
    """
    assert gate.pair is not None
    hidden, output = gate.pair.hidden, gate.pair.output
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    dropped = min(round(gate.dropout * 2**16), 2**16 - 1) if gate.training else 0
    seed = int(torch.randint(2**63 - 1, ())) if dropped else 0
    scores: Tensor = _NativeMixture.apply(  # type: ignore[no-untyped-call]
        products, query_gate, item_gate, hidden.weight, hidden.bias, output.weight, output.bias,
        gate.activation is GateActivation.SILU, dropped, seed,
    )  # fmt: skip
    return scores


class _NativeMixture(torch.autograd.Function):
    """phi = <pi, l> with pi = softmax(act(gate_q * gate_x + W2 silu(W1 l + b1) + b2))."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        query_gate: Tensor | None,
        item_gate: Tensor | None,
        *weights_and_options: Any,
    ) -> Tensor:
        *weights, has_silu, dropped, seed = weights_and_options
        tensors = [
            None if each is None else each.detach().contiguous() for each in (scores, query_gate, item_gate, *weights)
        ]
        ctx.save_for_backward(*tensors)
        ctx.options = has_silu, dropped, seed
        mixed = scores.new_empty(len(scores), scores.shape[2])  # (B, N)
        library.mix_in_training(
            chosen_isa(), torch.get_num_threads(), _step(tensors, *ctx.options), _addresses(tensors[3:]),
            mixed.data_ptr(),
        )  # fmt: skip
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        tensors = list(ctx.saved_tensors)
        gradients = [None if each is None else torch.empty_like(each) for each in tensors]
        own = upstream.contiguous()  # (B, N)
        library.mix_backward(
            chosen_isa(), torch.get_num_threads(), _step(tensors, *ctx.options), _addresses(tensors[3:]),
            own.data_ptr(), _addresses(gradients),
        )  # fmt: skip
        return (*gradients, None, None, None)


def _step(tensors: list[Tensor | None], has_silu: bool, dropped: int, seed: int) -> "library.TrainingStep":
    scores, query_gate, item_gate, hidden_weight = tensors[:4]
    assert scores is not None
    assert hidden_weight is not None
    num_queries, num_query_components, num_items, num_item_components = scores.shape
    num_pairs = num_query_components * num_item_components
    assert hidden_weight.shape[1] == num_pairs
    assert query_gate is None or query_gate.shape == (num_queries, num_pairs)
    has_own_items = item_gate is not None and item_gate.ndim == 3
    assert item_gate is None or item_gate.shape == (num_queries, num_items, num_pairs)[not has_own_items :]
    return library.TrainingStep(
        num_queries=num_queries,
        num_items=num_items,
        num_query_components=num_query_components,
        num_item_components=num_item_components,
        hidden_dim=len(hidden_weight),
        has_silu=has_silu,
        has_own_items=has_own_items,
        scores=scores.data_ptr(),
        query_gate=0 if query_gate is None else query_gate.data_ptr(),
        item_gate=0 if item_gate is None else item_gate.data_ptr(),
        seed=seed,
        dropped=dropped,
    )


def _addresses(tensors: list[Tensor | None]) -> list[int]:
    return [0 if each is None else each.data_ptr() for each in tensors]
