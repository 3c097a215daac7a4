"""HSTU: pointwise attention with time, the encoder of the paper's best recommenders (Zhai et al., 2024)."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from railsearch.encoders.histories import Histories, check_item_rows
from railsearch.encoders.packing import Packing, group_histories
from railsearch.inputs import check_count, check_seed, check_share
from railsearch.similarity.contract import ConfigValue

EXTRA_LENGTH = 11
"""Attention is divided by max_length + 11, the padded length of the published runs."""
NUM_TIME_BUCKETS = 129
TIME_BUCKET_WIDTH = 0.301
"""Of the natural logarithm of seconds."""
NORM_EPSILON = 1e-6
BLOCKED = -1e4
"""A score that SiLU takes to zero, and whose slope there is zero."""


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

    >>> import torch
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
        packing = group_histories(histories.lengths, num_heads=self.num_heads)
        buckets = [
            time_buckets(next_times[:, :, None] - times[:, None])  # (b, n, n)
            for next_times, times in zip(
                packing.unpack(histories.next_times), packing.unpack(histories.times), strict=True
            )
        ]
        events = self.item_table(histories.items) * math.sqrt(self.dim)  # (E, D)
        events = F.dropout(events + self.position_table(packing.positions), self.dropout, self.training)  # (E, D)
        for block in self.blocks:
            events = block(events, packing, buckets)  # (E, D)
        return F.layer_norm(events, (self.dim,), eps=NORM_EPSILON) if self.normalizes_output else events

    def embed_items(self, rows: Tensor | None = None) -> Tensor:
        """Give items as a similarity takes them: (n, D), all items where no rows are given."""
        if rows is None:
            return self.item_table.weight
        check_item_rows(rows, num_items=self.num_items, name="rows")
        return F.embedding(rows, self.item_table.weight)


def time_buckets(seconds: Tensor) -> Tensor:
    """Give the bucket of each stretch of time, whatever its sign: wider ones the longer it is."""
    logarithms = seconds.abs().clamp(min=1).float().log()
    return (logarithms / TIME_BUCKET_WIDTH).long().clamp(max=NUM_TIME_BUCKETS - 1)


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

    def forward(self, events: Tensor, packing: Packing, buckets: list[Tensor]) -> Tensor:
        """Take events (E, D) to events (E, D)."""
        inputs = F.silu(self.input(_normalize(events)))  # (E, 4 * H * d)
        gates, attention_inputs = inputs.tensor_split([inputs.shape[1] // 4], dim=1)  # u, and v, q, k together
        attention_inputs = attention_inputs.view(len(events), 3, self.num_heads, -1)  # (E, 3, H, d)
        attended = self._attend(attention_inputs, packing, buckets)  # (E, H * d)
        gated = F.dropout(gates * _normalize(attended), self.dropout, self.training)  # (E, H * d)
        return self.output(gated) + events  # type: ignore[no-any-return]

    def _attend(self, values_queries_keys: Tensor, packing: Packing, buckets: list[Tensor]) -> Tensor:
        outputs = []
        for group, group_buckets in zip(packing.unpack(values_queries_keys), buckets, strict=True):
            values, queries, keys = group.permute(2, 0, 3, 1, 4)  # (b, H, n, d) each
            bias = self._distances(group.shape[1]) + self.time_bias[group_buckets]  # (b, n, n)
            weights = F.silu(queries @ keys.transpose(-1, -2) + bias[:, None]) / self.divisor  # (b, H, n, n)
            outputs.append((weights @ values).transpose(1, 2).flatten(2))  # (b, n, H * d)
        return packing.pack(outputs)  # (E, H * d)

    def _distances(self, length: int) -> Tensor:
        """Bias of each query and key by how far apart they are, and a block where the key is later."""
        positions = torch.arange(length, device=self.distance_bias.device)  # (n,)
        distances = positions[:, None] - positions  # (n, n)
        return self.distance_bias[distances.clamp(min=0)].masked_fill(distances < 0, BLOCKED)  # (n, n)


def _normalize(values: Tensor) -> Tensor:
    return F.layer_norm(values, values.shape[-1:], eps=NORM_EPSILON)
