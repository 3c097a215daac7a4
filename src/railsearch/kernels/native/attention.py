"""The gated attention of HSTU and its gradient in C++: no score and no activation is kept in memory."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from railsearch.kernels.native.library import chosen_isa, is_available, library

MOST_BUCKETS = 256
"""A time bucket is kept in one byte."""


def has_attention() -> bool:
    """Return whether the native kernels were compiled with attention, which an older build lacks."""
    return is_available() and hasattr(library, "AttentionPlan")


class AttentionPlan:
    """The histories of a batch and the time bucket of each pair of events; all blocks of an encoder share it.

    Args:
        lengths: (B,) int64, events of each history.
        times: (E,) int64, the time of each event, history by history.
        next_times: (E,) int64, the time of each position's query.
        bounds: (buckets,) fp32, the smallest time difference of each bucket, in ascending order.
    """

    def __init__(self, *, lengths: Tensor, times: Tensor, next_times: Tensor, bounds: Tensor) -> None:
        lengths, times, next_times, bounds = (each.contiguous() for each in (lengths, times, next_times, bounds))
        assert all(each.dtype == torch.int64 for each in (lengths, times, next_times))
        assert bounds.dtype == torch.float32
        assert 0 < len(bounds) <= MOST_BUCKETS
        assert int(lengths.min()) > 0
        assert int(lengths.sum()) == len(times) == len(next_times)
        self.num_events, self.num_buckets, self.longest = len(times), len(bounds), int(lengths.max())
        self.compiled = library.AttentionPlan(
            chosen_isa(), torch.get_num_threads(), lengths.data_ptr(), len(lengths), times.data_ptr(),
            next_times.data_ptr(), bounds.data_ptr(), len(bounds),
        )  # fmt: skip


def native_attention(
    inputs: Tensor,
    distance_bias: Tensor,
    time_bias: Tensor,
    *,
    num_heads: int,
    divisor: float,
    epsilon: float,
    dropout: float,
    plan: AttentionPlan,
) -> Tensor:
    """Return dropout(u * LN(a / divisor)) (E, H * d), where u, v, q, k = SiLU(inputs) and a attends to v by q and k.

    All tensors are fp32 on a CPU. The seed of dropout comes from torch's generator. The bits of outputs and gradients
    do not depend on the number of threads.

    Args:
        inputs: (E, 4 * H * d) of all events.
        distance_bias: (max_length,) by how many events the key precedes the query.
        time_bias: (buckets,) by the time from the key to the moment of the query.
        num_heads: H.
        divisor: divides a before it is normalized.
        epsilon: added to the variance by which a is normalized.
        dropout: share of the outputs that is dropped.
        plan: the histories.
    """
    dropped = min(round(dropout * 2**16), 2**16 - 1)
    seed = int(torch.randint(2**63 - 1, ())) if dropped else 0
    options = _Options(plan, num_heads, 1 / divisor, epsilon, seed, dropped)
    outputs: Tensor = _NativeAttention.apply(inputs, distance_bias, time_bias, options)  # type: ignore[no-untyped-call]
    return outputs


@dataclass(frozen=True, slots=True)
class _Options:
    plan: AttentionPlan
    num_heads: int
    scale: float
    epsilon: float
    seed: int
    dropped: int  # of 2^16 draws


class _NativeAttention(torch.autograd.Function):
    """Attention of every history; scores are recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, distance_bias: Tensor, time_bias: Tensor, options: _Options) -> Tensor:
        """Return the outputs (E, H * d)."""
        tensors = [each.detach().contiguous() for each in (inputs, distance_bias, time_bias)]
        ctx.options = options
        outputs = inputs.new_empty(len(inputs), inputs.shape[1] // 4)  # (E, H * d)
        attended = torch.empty_like(outputs) if any(ctx.needs_input_grad) else None  # (E, H * d)
        options.plan.compiled.forward(
            chosen_isa(), torch.get_num_threads(), _step(tensors, options),
            0 if attended is None else attended.data_ptr(), outputs.data_ptr(),
        )  # fmt: skip
        if attended is not None:
            ctx.save_for_backward(*tensors, attended)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs and of both biases."""
        *tensors, attended = ctx.saved_tensors
        options: _Options = ctx.options
        gradients = [torch.empty_like(each) for each in tensors]
        own = upstream.contiguous()  # (E, H * d)
        to_inputs, to_distances, to_times = gradients
        options.plan.compiled.backward(
            chosen_isa(), torch.get_num_threads(), _step(tensors, options), attended.data_ptr(),
            own.data_ptr(), to_inputs.data_ptr(), to_distances.data_ptr(), len(to_distances), to_times.data_ptr(),
        )  # fmt: skip
        return (*gradients, None)


def _step(tensors: list[Tensor], options: _Options) -> "library.AttentionStep":
    inputs, distance_bias, time_bias = tensors
    assert all(each.dtype == torch.float32 and each.device.type == "cpu" for each in tensors)
    assert len(inputs) == options.plan.num_events
    assert inputs.shape[1] % (4 * options.num_heads) == 0
    assert len(distance_bias) >= options.plan.longest
    assert len(time_bias) == options.plan.num_buckets
    return library.AttentionStep(
        num_heads=options.num_heads,
        head_dim=inputs.shape[1] // (4 * options.num_heads),
        inputs=inputs.data_ptr(),
        distance_bias=distance_bias.data_ptr(),
        time_bias=time_bias.data_ptr(),
        scale=options.scale,
        epsilon=options.epsilon,
        seed=options.seed,
        dropped=options.dropped,
    )
