"""The middle of a block of HSTU, from its inputs to its gated attention: in C++ on a CPU, with torch otherwise."""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.encoders.sequence.histories import Histories
from railsearch.encoders.sequence.packing import group_histories
from railsearch.encoders.sequence.tiled_attention import (
    NUM_TIME_BUCKETS,
    AttentionLayout,
    attend,
    plan_attention,
    time_buckets,
)
from railsearch.kernels import native
from railsearch.kernels.choose import uses_native

NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class GatedPlan:
    """How the blocks of an encoder compute the attention of a batch of histories."""

    positions: Tensor  # (E,) position of each event in its history; the oldest is at 0
    way: native.AttentionPlan | AttentionLayout


def plan_gated_attention(histories: Histories, *, num_heads: int, weights: Tensor) -> GatedPlan:
    """Choose C++ or torch for an encoder with these weights, and prepare the histories once for all blocks.

    C++ computes in fp32 on a CPU, if the native kernels were compiled and no exporter or compiler is tracing.
    """
    is_traced = torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()
    if is_traced or weights.dtype != torch.float32 or not (uses_native(weights.device) and native.has_attention()):
        layout = plan_attention(histories, group_histories(histories.lengths, num_heads=num_heads))
        return GatedPlan(layout.packing.positions, layout)
    plan = native.AttentionPlan(
        lengths=histories.lengths, times=histories.times, next_times=histories.next_times, bounds=bucket_bounds()
    )
    starts = histories.lengths.cumsum(dim=0) - histories.lengths  # (B,)
    positions = torch.arange(len(histories.items)) - starts.repeat_interleave(histories.lengths)  # (E,)
    return GatedPlan(positions, plan)


def gated_attention(
    inputs: Tensor,
    distance_bias: Tensor,
    time_bias: Tensor,
    *,
    num_heads: int,
    divisor: float,
    dropout: float,
    plan: GatedPlan,
) -> Tensor:
    """Return dropout(u * LN(a / divisor)) (E, H * d), where u, v, q, k = SiLU(inputs) and a attends to v by q and k.

    C++ and torch draw different numbers for dropout.

    Args:
        inputs: (E, 4 * H * d) of all events.
        distance_bias: (max_length,) see `attend_plainly`.
        time_bias: (NUM_TIME_BUCKETS,) see `attend_plainly`.
        num_heads: H.
        divisor: divides the attention before it is normalized.
        dropout: share of the outputs that is dropped; 0 outside of training.
        plan: from `plan_gated_attention` for these histories.
    """
    if isinstance(plan.way, native.AttentionPlan):
        return native.native_attention(
            inputs, distance_bias, time_bias, num_heads=num_heads, divisor=divisor, epsilon=NORM_EPSILON,
            dropout=dropout, plan=plan.way,
        )  # fmt: skip
    active = F.silu(inputs)  # (E, 4 * H * d)
    size = active.shape[1] // 4
    gates, values_queries_keys = torch.split(active, [size, 3 * size], dim=1)  # u; v, q and k
    attended = attend(values_queries_keys, distance_bias, time_bias, num_heads=num_heads, layout=plan.way)  # (E, H * d)
    return F.dropout(gates * normalize(attended / divisor), dropout, training=True)


def normalize(values: Tensor) -> Tensor:
    """Return rows of mean 0 and variance 1, without weights."""
    return F.layer_norm(values, values.shape[-1:], eps=NORM_EPSILON)


@functools.cache
def bucket_bounds() -> Tensor:
    """Return the smallest time difference of each bucket (NUM_TIME_BUCKETS,), as `time_buckets` rounds; inf for none.

    A binary search over the bits of positive floats, which are in the same order as the floats.
    """
    wanted = torch.arange(NUM_TIME_BUCKETS)  # (buckets,)
    low = torch.zeros(NUM_TIME_BUCKETS, dtype=torch.int64)  # (buckets,) the bits of 0
    high = torch.full_like(low, 0x7F800000)  # the bits of inf
    while bool((low < high).any()):
        middle = (low + high) // 2
        is_reached = time_buckets(middle.int().view(torch.float32)) >= wanted
        low, high = torch.where(is_reached, low, middle + 1), torch.where(is_reached, middle, high)
    return low.int().view(torch.float32)
