"""HSTU: attention by SiLU with a bias for time, the encoder of the paper's best recommenders (Zhai et al., 2024).

A block maps the events x of a history to

    u, v, q, k = SiLU(W_in LN(x))
    a_i        = sum over j <= i of SiLU(<q_i, k_j> + distance_bias[i - j] + time_bias[bucket(i, j)]) v_j / divisor
    x          + W_out dropout(u * LN(a))

Attention is not normalised by a softmax, so that it can measure how often the user did something.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from railsearch.encoders.sequence.dropout import drop
from railsearch.encoders.sequence.gated_attention import (
    NORM_EPSILON,
    GatedPlan,
    gated_attention,
    normalize,
    plan_gated_attention,
)
from railsearch.encoders.sequence.histories import Histories
from railsearch.encoders.sequence.item_table import ItemTable
from railsearch.encoders.sequence.tiled_attention import NUM_TIME_BUCKETS
from railsearch.encoders.sequence.time_thresholds import exact_time_buckets
from railsearch.foundation.inputs import check_count, check_seed, check_share
from railsearch.similarity.contract import ConfigValue

EXTRA_LENGTH = 11
"""Attention is divided by max_length + 11, the padded length of the published runs."""


class HSTU(nn.Module):
    """An encoder of every position of a history, from the events up to it and the time of the request.

    Args:
        num_items: rows of the item table.
        dim: D, the size of item embeddings and of outputs.
        num_blocks: number of blocks.
        num_heads: H, attention heads.
        head_dim: d, the size of queries, keys and values in one head.
        max_length: the longest history.
        dropout: share of values dropped while training, of the input and in the blocks.
        normalizes_output: apply layer norm to outputs, as for a Mixture of Logits; a cosine normalises by itself.
        item_features: (N, F) features of each item, such as an embedding of its text; their projection is added to the
            item table, for histories and for the similarity alike.
        item_ids: learn a row for each item; False replaces these rows with item_features.
        item_id_dropout: share of item lookups in training that use the features alone; without features, no effect.
        feature_dim: F, if item_features are loaded with the weights.
        seed: seed of the initial weights; None draws them from torch's global generator.

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
        item_features: Tensor | None = None,
        item_ids: bool = True,
        item_id_dropout: float = 0.0,
        feature_dim: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.dim = check_count(dim, name="dim")
        self.num_heads = check_count(num_heads, name="num_heads")
        self.head_dim = check_count(head_dim, name="head_dim")
        self.max_length = check_count(max_length, name="max_length")
        self.dropout = check_share(dropout, name="dropout")
        self.normalizes_output = normalizes_output
        self.item_table = ItemTable(
            num_items=num_items,
            dim=self.dim,
            features=item_features,
            feature_dim=feature_dim,
            has_ids=item_ids,
            id_dropout=item_id_dropout,
        )
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
    def num_items(self) -> int:
        """Number of items."""
        return self.item_table.num_items

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this encoder again."""
        return {
            "num_items": self.num_items,
            "dim": self.dim,
            "num_blocks": len(self.blocks),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "max_length": self.max_length,
            "dropout": self.dropout,
            "normalizes_output": self.normalizes_output,
            **self.item_table.config,
        }

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialize all weights again, from the generator if there is one."""
        self.item_table.reset_parameters(generator)
        nn.init.trunc_normal_(self.position_table.weight, std=math.sqrt(1 / self.dim), generator=generator)
        for block in self.blocks:
            assert isinstance(block, _Block)
            block.reset_parameters(generator)

    def forward(self, histories: Histories) -> Tensor:
        """Return the encoding of every position (E, D), in the order of the histories."""
        histories.check(num_items=self.num_items, max_length=self.max_length)
        plan = plan_gated_attention(histories, num_heads=self.num_heads, weights=self.position_table.weight)
        events = self.item_table(histories.items) * math.sqrt(self.dim)  # (E, D)
        events = events + self.position_table(plan.positions)
        events = drop(events, self.dropout, is_training=self.training)
        for block in self.blocks:
            events = block(events, plan)  # (E, D)
        return F.layer_norm(events, (self.dim,), eps=NORM_EPSILON) if self.normalizes_output else events

    def encode_padded(self, items: Tensor, times: Tensor, next_times: Tensor) -> Tensor:
        """Return the encoding (B, n, D) of every position of padded histories, as the contract states."""
        positions = torch.arange(items.shape[1], device=items.device)  # (n,)
        buckets = exact_time_buckets(next_times[:, :, None] - times[:, None])  # (B, n, n)
        events = F.embedding(items, self.embed_items()) * math.sqrt(self.dim)  # (B, n, D)
        events = events + self.position_table(positions)
        for block in self.blocks:
            assert isinstance(block, _Block)
            events = block.forward_padded(events, buckets)  # (B, n, D)
        return F.layer_norm(events, (self.dim,), eps=NORM_EPSILON) if self.normalizes_output else events

    def embed_items(self, rows: Tensor | None = None) -> Tensor:
        """Return the item embeddings of these rows (n, D), or of all items, for a similarity."""
        return self.item_table.embed(rows)


class _Block(nn.Module):
    """One block: the formula at the top of this file."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_length: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.divisor = max_length + EXTRA_LENGTH
        self.dropout = dropout
        self.input = nn.Linear(dim, 4 * num_heads * head_dim, bias=False)
        self.output = nn.Linear(num_heads * head_dim, dim)
        self.distance_bias = nn.Parameter(torch.empty(max_length))  # by how many events the key precedes the query
        self.time_bias = nn.Parameter(torch.empty(NUM_TIME_BUCKETS))

    def reset_parameters(self, generator: Generator | None) -> None:
        """Initialize all weights."""
        nn.init.normal_(self.input.weight, std=0.02, generator=generator)
        nn.init.xavier_uniform_(self.output.weight, generator=generator)
        nn.init.zeros_(self.output.bias)
        nn.init.normal_(self.distance_bias, std=0.02, generator=generator)
        nn.init.normal_(self.time_bias, std=0.02, generator=generator)

    def forward(self, events: Tensor, plan: GatedPlan) -> Tensor:
        """Return the events (E, D) after this block."""
        gated = gated_attention(
            self.input(normalize(events)),
            self.distance_bias,
            self.time_bias,
            num_heads=self.num_heads,
            divisor=self.divisor,
            dropout=self.dropout if self.training else 0.0,
            plan=plan,
        )  # (E, H * d)
        outputs: Tensor = self.output(gated) + events  # (E, D)
        return outputs

    def forward_padded(self, events: Tensor, buckets: Tensor) -> Tensor:
        """Return the events (B, n, D) after this block; buckets (B, n, n) are those of query and key times."""
        inputs = F.silu(self.input(normalize(events)))  # (B, n, 4 * H * d)
        gates, *others = inputs.chunk(4, dim=-1)  # (B, n, H * d) each
        heads = (*events.shape[:2], self.num_heads, -1)
        values, queries, keys = (each.view(heads).transpose(1, 2) for each in others)  # (B, H, n, d) each
        positions = torch.arange(events.shape[1], device=events.device)  # (n,)
        distances = positions[:, None] - positions  # (n, n)
        bias = self.time_bias[buckets] + self.distance_bias[distances.clamp(min=0)]  # (B, n, n)
        weights = F.silu(queries @ keys.mT + bias[:, None])  # (B, H, n, n)
        attended = weights.masked_fill(distances < 0, 0.0) @ values  # (B, H, n, d)
        gated = gates * normalize(attended.transpose(1, 2).flatten(2) / self.divisor)  # (B, n, H * d)
        outputs: Tensor = self.output(gated) + events  # (B, n, D)
        return outputs
