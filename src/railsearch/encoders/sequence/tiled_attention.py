"""The attention of HSTU: a plain reference that follows the formula, and the tiled version that the encoder uses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from railsearch.encoders.sequence.histories import Histories
from railsearch.encoders.sequence.packing import Packing

NUM_TIME_BUCKETS = 129
TIME_BUCKET_WIDTH = 0.301
"""Width of a bucket in the natural logarithm of seconds."""
QUERIES_PER_TILE = 64
"""Small tiles compute fewer scores that causality hides; large tiles need fewer calls."""


def time_buckets(seconds: Tensor) -> Tensor:
    """Return the bucket of each time difference, whatever its sign; buckets of longer differences are wider."""
    logarithms = seconds.to(torch.float32, copy=True).abs_().clamp_(min=1).log_()
    return logarithms.div_(TIME_BUCKET_WIDTH).clamp_(max=NUM_TIME_BUCKETS - 1).long()


def attend_plainly(
    values: Tensor,
    queries: Tensor,
    keys: Tensor,
    distance_bias: Tensor,
    time_bias: Tensor,
    *,
    times: Tensor,
    next_times: Tensor,
) -> Tensor:
    """Return the attention (H, n, d) of one history, by the formula; the reference for `attend`.

    a_i = sum over j <= i of SiLU(<q_i, k_j> + distance_bias[i - j] + time_bias[bucket(next_times_i - times_j)]) v_j

    Args:
        values: (H, n, d).
        queries: (H, n, d).
        keys: (H, n, d).
        distance_bias: (max_length,) by how many events the key precedes the query.
        time_bias: (NUM_TIME_BUCKETS,) by the time from the key to the moment of the query.
        times: (n,) time of each event.
        next_times: (n,) time of each position's query for the next item.
    """
    positions = torch.arange(len(times), device=times.device)  # (n,)
    distances = (positions[:, None] - positions).clamp(min=0)  # (n, n)
    buckets = time_buckets(next_times[:, None] - times)  # (n, n)
    scores = queries @ keys.mT + distance_bias[distances] + time_bias[buckets]  # (H, n, n)
    return torch.tril(F.silu(scores)) @ values


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """c consecutive queries of a group of b histories, and the m keys up to the last of these queries."""

    start: int
    stop: int
    buckets: Tensor  # (b * c * m,) time bucket of each query and key

    @property
    def query_rows(self) -> slice:
        """Positions of the queries."""
        return slice(self.start, self.stop)

    @property
    def key_rows(self) -> slice:
        """Positions of the keys: all that the last query of the tile sees."""
        return slice(self.stop)


@dataclass(frozen=True, slots=True, eq=False)
class AttentionLayout:
    """The groups and tiles of a batch of histories; all blocks of an encoder share it."""

    packing: Packing
    tiles: Sequence[Sequence[Tile]]  # the tiles of each group
    distances: Tensor  # (N, N) number of events by which a key precedes a query; negative for later keys


def plan_attention(histories: Histories, packing: Packing) -> AttentionLayout:
    """Cut groups into tiles and compute the time buckets, once for all blocks."""
    query_times = packing.split(packing.unpack(histories.next_times))  # (b, n) for each group
    key_times = packing.split(packing.unpack(histories.times))  # (b, n) for each group
    tiles = []
    for next_times, times in zip(query_times, key_times, strict=True):
        length = times.shape[1]
        step = math.ceil(length / math.ceil(length / QUERIES_PER_TILE))
        tiles.append(
            [
                Tile(start, stop, time_buckets(next_times[:, start:stop, None] - times[:, None, :stop]).flatten())
                for start, stop in ((start, min(start + step, length)) for start in range(0, length, step))
            ]
        )
    positions = torch.arange(max(length for _, length in packing.shapes), device=histories.times.device)  # (N,)
    return AttentionLayout(packing, tiles, positions[:, None] - positions)


def attend(
    inputs: Tensor, distance_bias: Tensor, time_bias: Tensor, *, num_heads: int, layout: AttentionLayout
) -> Tensor:
    """Return the attention (E, H * d) of all events, as `attend_plainly` computes it for each history.

    Args:
        inputs: (E, 3 * H * d) values, queries and keys of all events.
        distance_bias: (max_length,) see `attend_plainly`.
        time_bias: (NUM_TIME_BUCKETS,) see `attend_plainly`.
        num_heads: H.
        layout: the groups and tiles of these histories.
    """
    padded = layout.packing.unpack(inputs)  # (T, 3 * H * d)
    padded = padded.view(len(padded), 3, num_heads, -1)  # (T, 3, H, d)
    distance_scores = distance_bias.index_select(0, layout.distances.clamp(min=0).flatten())  # (N * N,)
    hidden = torch.finfo(inputs.dtype).min / 2  # SiLU and its derivative are zero there, whatever q k^T adds
    distance_scores = distance_scores.view_as(layout.distances).masked_fill(layout.distances < 0, hidden)  # (N, N)
    attended: Tensor = _TiledAttention.apply(padded, distance_scores, time_bias, layout)  # type: ignore[no-untyped-call]
    return layout.packing.pack(attended)  # (E, H * d)


class _TiledAttention(torch.autograd.Function):
    """The attention of all groups, tile by tile.

    Few of the scores that causality hides are computed and kept, and the gradients of the biases are added up without
    an index operation for each score. Heads come before histories here.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, distance_scores: Tensor, time_bias: Tensor, layout: AttentionLayout
    ) -> Tensor:
        """Return the attention (T, H * d) of values, queries and keys (T, 3, H, d)."""
        num_heads = inputs.shape[2]
        outputs = torch.empty_like(inputs[:, 0])  # (T, H, d)
        groups = [_heads_first(group) for group in layout.packing.split(inputs)]  # (3, H * b, n, d) each
        scores_of_tiles = []
        for group, output, tiles in zip(groups, layout.packing.split(outputs), layout.tiles, strict=True):
            values, queries, keys = group  # (H * b, n, d) each
            for tile in tiles:
                rows, seen = tile.query_rows, tile.key_rows
                bias = time_bias.index_select(0, tile.buckets).view(len(output), -1, tile.stop)  # (b, c, m)
                bias += distance_scores[rows, seen]
                scores = bias.repeat(num_heads, 1, 1).baddbmm_(queries[:, rows], keys[:, seen].mT)  # (H * b, c, m)
                output[:, rows] = _heads_last(F.silu(scores) @ values[:, seen], num_heads)  # (b, c, H, d)
                scores_of_tiles.append(scores)
        ctx.save_for_backward(distance_scores, time_bias, *groups, *scores_of_tiles)
        ctx.layout, ctx.shape = layout, inputs.shape
        return outputs.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of the inputs and of both biases, from that of the outputs (T, H * d)."""
        layout: AttentionLayout = ctx.layout
        num_heads = ctx.shape[2]
        distance_scores, time_bias, *saved = ctx.saved_tensors
        groups, scores_of_tiles = saved[: len(layout.tiles)], iter(saved[len(layout.tiles) :])
        to_inputs = gradient.new_empty(ctx.shape)  # (T, 3, H, d)
        to_distances, to_times = torch.zeros_like(distance_scores), torch.zeros_like(time_bias)  # (N, N), (buckets,)
        outputs = layout.packing.split(gradient.view(len(gradient), num_heads, -1))  # (b, n, H, d) each
        for group, output, to_input, tiles in zip(
            groups, outputs, layout.packing.split(to_inputs), layout.tiles, strict=True
        ):
            values, queries, keys = group  # (H * b, n, d) each
            to_group = torch.zeros_like(group)
            to_values, to_queries, to_keys = to_group  # (H * b, n, d) each
            to_attended = _heads_first(output)  # (H * b, n, d)
            for tile in tiles:
                rows, seen = tile.query_rows, tile.key_rows
                scores = next(scores_of_tiles)  # (H * b, c, m)
                to_values[:, seen] += F.silu(scores).mT @ to_attended[:, rows]
                to_weights = to_attended[:, rows] @ values[:, seen].mT  # (H * b, c, m)
                to_scores: Tensor = torch.ops.aten.silu_backward(to_weights, scores)  # (H * b, c, m)
                to_queries[:, rows] = to_scores @ keys[:, seen]
                to_keys[:, seen] += to_scores.mT @ queries[:, rows]
                to_bias = to_scores.view(num_heads, -1, *scores.shape[1:]).sum(dim=0)  # (b, c, m)
                to_times.scatter_add_(0, tile.buckets, to_bias.flatten())
                to_distances[rows, seen] += to_bias.sum(dim=0)
            to_input.copy_(_heads_last(to_group, num_heads))
        return to_inputs, to_distances, to_times, None


def _heads_first(rows: Tensor) -> Tensor:
    """Return (b, n, ..., H, d) as (..., H * b, n, d), the layout of batched matrix products."""
    return rows.movedim((0, 1), (-3, -2)).flatten(-4, -3)


def _heads_last(rows: Tensor, num_heads: int) -> Tensor:
    """Return (..., H * b, n, d) as (b, n, ..., H, d)."""
    return rows.view(*rows.shape[:-3], num_heads, -1, *rows.shape[-2:]).movedim((-3, -2), (0, 1))
