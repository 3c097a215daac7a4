"""HSTU: pointwise attention with time, the encoder of the paper's best recommenders (Zhai et al., 2024)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn
from torch.autograd.function import once_differentiable

from railsearch.encoders.sequence.histories import Histories, check_item_rows
from railsearch.encoders.sequence.packing import Packing, group_histories
from railsearch.foundation.inputs import check_count, check_seed, check_share
from railsearch.similarity.contract import ConfigValue

EXTRA_LENGTH = 11
"""Attention is divided by max_length + 11, the padded length of the published runs."""
NUM_TIME_BUCKETS = 129
TIME_BUCKET_WIDTH = 0.301
"""Of the natural logarithm of seconds."""
NORM_EPSILON = 1e-6
QUERIES_PER_TILE = 64
"""Fewer waste less on scores that causality blocks, more need fewer calls."""


class HSTU(nn.Module):
    """Encodes every position of a history, each from the events up to it and from the time of the request.

    Args:
        num_items: rows of the item table.
        dim: D, the size of item embeddings and of outputs.
        num_blocks: how many blocks.
        num_heads: H, attention heads.
        head_dim: d, the size of queries, keys and values in one head.
        max_length: the longest history.
        dropout: share of values dropped while training, of the input and in the blocks.
        normalizes_output: layer-normalise outputs, as for a Mixture of Logits; a cosine does its own scaling.
        seed: of the first weights; None draws them from torch's global generator.

    >>> encoder = HSTU(num_items=100, dim=16, num_blocks=2, head_dim=8, max_length=20, seed=0).eval()
    >>> times = torch.tensor([10, 20, 30, 10, 15])
    >>> histories = Histories(
    ...     items=torch.tensor([3, 1, 4, 1, 5]), times=times, next_times=times + 10, lengths=torch.tensor([3, 2])
    ... )
    >>> encoder(histories).shape
    torch.Size([5, 16])
    """

    kind: ClassVar[str] = "hstu"

    def __init__(
        self,
        *,
        num_items: int,
        dim: int = 50,
        num_blocks: int = 8,
        num_heads: int = 2,
        head_dim: int = 25,
        max_length: int = 200,
        dropout: float = 0.2,
        normalizes_output: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.num_items = check_count(num_items, name="num_items")
        self.dim = check_count(dim, name="dim")
        self.num_heads = check_count(num_heads, name="num_heads")
        self.head_dim = check_count(head_dim, name="head_dim")
        self.max_length = check_count(max_length, name="max_length")
        self.dropout = check_share(dropout, name="dropout")
        self.normalizes_output = normalizes_output
        self.item_table = nn.Embedding(self.num_items, self.dim)
        self.position_table = nn.Embedding(self.max_length, self.dim)
        self.blocks = nn.ModuleList(
            _Block(
                dim=self.dim,
                num_heads=self.num_heads,
                head_dim=self.head_dim,
                max_length=self.max_length,
                dropout=self.dropout,
            )
            for _ in range(check_count(num_blocks, name="num_blocks"))
        )
        self.reset_parameters(None if seed is None else Generator().manual_seed(check_seed(seed)))

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this encoder anew."""
        return {
            "num_items": self.num_items,
            "dim": self.dim,
            "num_blocks": len(self.blocks),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "max_length": self.max_length,
            "dropout": self.dropout,
            "normalizes_output": self.normalizes_output,
        }

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Give all weights their first values anew, from the generator if one is given."""
        nn.init.trunc_normal_(self.item_table.weight, std=0.02, generator=generator)
        nn.init.trunc_normal_(self.position_table.weight, std=math.sqrt(1 / self.dim), generator=generator)
        for block in self.blocks:
            assert isinstance(block, _Block)
            block.reset_parameters(generator)

    def forward(self, histories: Histories) -> Tensor:
        """Encode every position: (E, D), in the order of the histories."""
        histories.check(num_items=self.num_items, max_length=self.max_length)
        layout = lay_out(histories, group_histories(histories.lengths, num_heads=self.num_heads))
        events = self.item_table(histories.items) * math.sqrt(self.dim)  # (E, D)
        events = events + self.position_table(layout.packing.positions)
        events = F.dropout(events, self.dropout, self.training)
        for block in self.blocks:
            events = block(events, layout)  # (E, D)
        return F.layer_norm(events, (self.dim,), eps=NORM_EPSILON) if self.normalizes_output else events

    def embed_items(self, rows: Tensor | None = None) -> Tensor:
        """Give items as a similarity takes them: (n, D), all items where no rows are given."""
        if rows is None:
            return self.item_table.weight
        check_item_rows(rows, num_items=self.num_items, name="rows")
        return F.embedding(rows, self.item_table.weight)


def time_buckets(seconds: Tensor) -> Tensor:
    """Give the bucket of each stretch of time, whatever its sign: wider ones the longer it is."""
    logarithms = seconds.to(torch.float32, copy=True).abs_().clamp_(min=1).log_()
    return logarithms.div_(TIME_BUCKET_WIDTH).clamp_(max=NUM_TIME_BUCKETS - 1).long()


class _Block(nn.Module):
    """W_o(dropout(u * LN(a))) + x, where a is attention by SiLU in place of softmax."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_length: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.divisor = max_length + EXTRA_LENGTH
        self.dropout = dropout
        self.input = nn.Linear(dim, 4 * num_heads * head_dim, bias=False)
        self.output = nn.Linear(num_heads * head_dim, dim)
        self.distance_bias = nn.Parameter(torch.empty(max_length))  # by how many events the key is before the query
        self.time_bias = nn.Parameter(torch.empty(NUM_TIME_BUCKETS))

    def reset_parameters(self, generator: Generator | None) -> None:
        """Give all weights their first values."""
        nn.init.normal_(self.input.weight, std=0.02, generator=generator)
        nn.init.xavier_uniform_(self.output.weight, generator=generator)
        nn.init.zeros_(self.output.bias)
        nn.init.normal_(self.distance_bias, std=0.02, generator=generator)
        nn.init.normal_(self.time_bias, std=0.02, generator=generator)

    def forward(self, events: Tensor, layout: "Layout") -> Tensor:
        """Take events (E, D) to events (E, D)."""
        inputs = F.silu(self.input(_normalize(events)))  # (E, 4 * H * d)
        size = inputs.shape[1] // 4
        gates, attention_inputs = torch.split(inputs, [size, 3 * size], dim=1)  # u; v, q and k
        attended = attend(
            attention_inputs, self.distance_bias, self.time_bias, num_heads=self.num_heads, layout=layout
        )  # (E, H * d)
        gated = gates * _normalize(attended / self.divisor)  # (E, H * d)
        outputs: Tensor = self.output(F.dropout(gated, self.dropout, self.training)) + events  # (E, D)
        return outputs


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """c consecutive queries of a group, with the m keys that the last of them sees: the causal half, and little more.

    Histories of a group are alike in this, b of them.
    """

    start: int
    stop: int
    buckets: Tensor  # (b * c * m,) of the time from each key to each query


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What attention has to know of a batch of histories, the same in all blocks."""

    packing: Packing
    tiles: Sequence[Sequence[Tile]]  # of each group
    distances: Tensor  # (N, N) how many events a key is before a query; negative where it comes after


def lay_out(histories: Histories, packing: Packing) -> Layout:
    """Cut groups into tiles and sort the times between events into buckets, once for all blocks."""
    asked = packing.split(packing.unpack(histories.next_times))  # (b, n) each
    seen = packing.split(packing.unpack(histories.times))  # (b, n) each
    tiles = []
    for next_times, times in zip(asked, seen, strict=True):
        length = times.shape[1]
        step = math.ceil(length / math.ceil(length / QUERIES_PER_TILE))
        tiles.append(
            [
                Tile(start, stop, time_buckets(next_times[:, start:stop, None] - times[:, None, :stop]).flatten())
                for start, stop in ((start, min(start + step, length)) for start in range(0, length, step))
            ]
        )
    positions = torch.arange(max(length for _, length in packing.shapes), device=histories.times.device)  # (N,)
    return Layout(packing, tiles, positions[:, None] - positions)


def attend(inputs: Tensor, distance_bias: Tensor, time_bias: Tensor, *, num_heads: int, layout: Layout) -> Tensor:
    """SiLU(q k^T + rab) v, causally: what each event attends to (E, H * d), from its v, q and k (E, 3 * H * d)."""
    padded = layout.packing.unpack(inputs)  # (T, 3 * H * d)
    padded = padded.view(len(padded), 3, num_heads, -1)  # (T, 3, H, d)
    distance_scores = distance_bias.index_select(0, layout.distances.clamp(min=0).flatten())  # (N * N,)
    blocked = torch.finfo(inputs.dtype).min / 2  # SiLU and its slope are zero there, whatever q k^T adds
    distance_scores = distance_scores.view_as(layout.distances).masked_fill(layout.distances < 0, blocked)  # (N, N)
    attended: Tensor = _TiledAttention.apply(padded, distance_scores, time_bias, layout)  # type: ignore[no-untyped-call]
    return layout.packing.pack(attended)  # (E, H * d)


class _TiledAttention(torch.autograd.Function):
    """Pointwise attention of all groups, tile by tile.

    The same as one line of torch for each group, but hardly anything is computed and kept that causality blocks, and
    gradients of the biases are added up without an index operation on each score. Heads stand before histories here.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, distance_scores: Tensor, time_bias: Tensor, layout: Layout) -> Tensor:
        """Take v, q and k (T, 3, H, d) to what is attended to (T, H * d)."""
        num_heads = inputs.shape[2]
        outputs = torch.empty_like(inputs[:, 0])  # (T, H, d)
        groups = [_heads_first(group) for group in layout.packing.split(inputs)]  # (3, H * b, n, d) each
        scores_of_tiles = []
        for group, output, tiles in zip(groups, layout.packing.split(outputs), layout.tiles, strict=True):
            values, queries, keys = group  # (H * b, n, d) each
            for tile in tiles:
                asked, seen = slice(tile.start, tile.stop), slice(tile.stop)
                bias = time_bias.index_select(0, tile.buckets).view(len(output), -1, tile.stop)  # (b, c, m)
                bias += distance_scores[asked, seen]
                scores = bias.repeat(num_heads, 1, 1).baddbmm_(queries[:, asked], keys[:, seen].mT)  # (H * b, c, m)
                output[:, asked] = _heads_last(F.silu(scores) @ values[:, seen], num_heads)  # (b, c, H, d)
                scores_of_tiles.append(scores)
        ctx.save_for_backward(distance_scores, time_bias, *groups, *scores_of_tiles)
        ctx.layout, ctx.shape = layout, inputs.shape
        return outputs.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Take the gradient of the outputs (T, H * d) to those of v, q, k and of both biases."""
        layout: Layout = ctx.layout
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
                asked, seen = slice(tile.start, tile.stop), slice(tile.stop)
                scores = next(scores_of_tiles)  # (H * b, c, m)
                to_values[:, seen] += F.silu(scores).mT @ to_attended[:, asked]
                to_weights = to_attended[:, asked] @ values[:, seen].mT  # (H * b, c, m)
                to_scores: Tensor = torch.ops.aten.silu_backward(to_weights, scores)  # (H * b, c, m)
                to_queries[:, asked] = to_scores @ keys[:, seen]
                to_keys[:, seen] += to_scores.mT @ queries[:, asked]
                to_bias = to_scores.view(num_heads, -1, *scores.shape[1:]).sum(dim=0)  # (b, c, m)
                to_times.scatter_add_(0, tile.buckets, to_bias.flatten())
                to_distances[asked, seen] += to_bias.sum(dim=0)
            to_input.copy_(_heads_last(to_group, num_heads))
        return to_inputs, to_distances, to_times, None


def _heads_first(rows: Tensor) -> Tensor:
    """(b, n, ..., H, d) to (..., H * b, n, d), as matrix products want it."""
    return rows.movedim((0, 1), (-3, -2)).flatten(-4, -3)


def _heads_last(rows: Tensor, num_heads: int) -> Tensor:
    """(..., H * b, n, d) to (b, n, ..., H, d)."""
    return rows.view(*rows.shape[:-3], num_heads, -1, *rows.shape[-2:]).movedim((-3, -2), (0, 1))


def _normalize(values: Tensor) -> Tensor:
    return F.layer_norm(values, values.shape[-1:], eps=NORM_EPSILON)
