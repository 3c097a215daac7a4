"""SASRec: causal self-attention over a history (Kang and McAuley, 2018), with normalisation before each layer."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from railsearch.encoders.sequence.dropout import drop
from railsearch.encoders.sequence.histories import Histories
from railsearch.encoders.sequence.item_table import ItemTable
from railsearch.encoders.sequence.packing import Packing, group_histories
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_seed, check_share
from railsearch.similarity.contract import ConfigValue


class SASRec(nn.Module):
    """An encoder of every position of a history, from the events up to it.

    Args:
        num_items: rows of the item table.
        dim: D, the size of item embeddings and of outputs.
        num_blocks: number of blocks, each of attention and feed-forward.
        num_heads: attention heads; must divide dim.
        max_length: the longest history.
        dropout: share of values dropped while training, of the input and in the blocks.
        normalizes_output: apply layer norm to outputs, as for a Mixture of Logits; a cosine normalises by itself.
        item_features: (N, F) features of each item, such as an embedding of its text; their projection is added to the
            item table, for histories and for the similarity alike.
        item_ids: learn a row for each item; False replaces these rows with item_features.
        item_id_dropout: share of item lookups in training that use the features alone; without features, no effect.
        feature_dim: F, if item_features are loaded with the weights.
        seed: seed of the initial weights; None draws them from torch's global generator.

    >>> encoder = SASRec(num_items=100, dim=16, max_length=20, seed=0).eval()
    >>> times = torch.tensor([10, 20, 30, 10, 15])
    >>> histories = Histories(
    ...     items=torch.tensor([3, 1, 4, 1, 5]), times=times, next_times=times + 10, lengths=torch.tensor([3, 2])
    ... )
    >>> encoder(histories).shape
    torch.Size([5, 16])
    """

    kind: ClassVar[str] = "sasrec"

    def __init__(
        self,
        *,
        num_items: int,
        dim: int = 50,
        num_blocks: int = 2,
        num_heads: int = 1,
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
        if self.dim % self.num_heads:
            raise InvalidInputError(f"num_heads is {num_heads} but dim is {dim}; choose num_heads that divides dim.")
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
            _Block(dim=self.dim, num_heads=self.num_heads, dropout=self.dropout)
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
            "max_length": self.max_length,
            "dropout": self.dropout,
            "normalizes_output": self.normalizes_output,
            **self.item_table.config,
        }

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialize all weights again, from the generator if there is one."""
        self.item_table.reset_parameters(generator)
        nn.init.trunc_normal_(self.position_table.weight, std=math.sqrt(1 / self.dim), generator=generator)
        for module in self.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()

    def forward(self, histories: Histories) -> Tensor:
        """Return the encoding of every position (E, D), in the order of the histories."""
        histories.check(num_items=self.num_items, max_length=self.max_length)
        packing = group_histories(histories.lengths, num_heads=self.num_heads)
        events = self.item_table(histories.items) * math.sqrt(self.dim)  # (E, D)
        events = events + self.position_table(packing.positions)
        events = drop(events, self.dropout, is_training=self.training)  # (E, D)
        for block in self.blocks:
            events = block(events, packing)  # (E, D)
        return F.layer_norm(events, (self.dim,)) if self.normalizes_output else events

    def encode_padded(self, items: Tensor, times: Tensor, next_times: Tensor) -> Tensor:
        """Return the encoding (B, n, D) of every position of padded histories, as the contract states."""
        positions = torch.arange(items.shape[1], device=items.device)  # (n,)
        events = F.embedding(items, self.embed_items()) * math.sqrt(self.dim)  # (B, n, D)
        events = events + self.position_table(positions)
        for block in self.blocks:
            assert isinstance(block, _Block)
            events = block.forward_padded(events)  # (B, n, D)
        return F.layer_norm(events, (self.dim,)) if self.normalizes_output else events

    def embed_items(self, rows: Tensor | None = None) -> Tensor:
        """Return the item embeddings of these rows (n, D), or of all items, for a similarity."""
        return self.item_table.embed(rows)


class _Block(nn.Module):
    """x + dropout(attention(LN(x))), then the same with a feed-forward layer."""

    def __init__(self, *, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(dim)
        self.attention_input = nn.Linear(dim, 3 * dim)
        self.attention_output = nn.Linear(dim, dim)
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.hidden = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, events: Tensor, packing: Packing) -> Tensor:
        """Return the events (E, D) after this block."""
        attended = self.attention_output(self._attend(self.attention_norm(events), packing))  # (E, D)
        events = events + self._drop(attended)
        hidden = self._drop(F.relu(self.hidden(self.feed_forward_norm(events))))  # (E, D)
        return events + self._drop(self.output(hidden))

    def forward_padded(self, events: Tensor) -> Tensor:
        """Return the events (B, n, D) after this block."""
        inputs = self.attention_input(self.attention_norm(events))  # (B, n, 3 * D)
        by_head = inputs.view(*inputs.shape[:2], 3, self.num_heads, -1)  # (B, n, 3, H, d)
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)  # (B, H, n, d) each
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])  # (B, H, n, n)
        positions = torch.arange(events.shape[1], device=events.device)  # (n,)
        scores = scores.masked_fill(positions[:, None] < positions, -torch.inf)
        attended = (F.softmax(scores, dim=-1) @ values).transpose(1, 2).flatten(2)  # (B, n, D)
        events = events + self.attention_output(attended)
        outputs: Tensor = self.output(F.relu(self.hidden(self.feed_forward_norm(events))))  # (B, n, D)
        return events + outputs

    def _attend(self, events: Tensor, packing: Packing) -> Tensor:
        padded = packing.unpack(self.attention_input(events))  # (T, 3 * D)
        outputs = []
        for group in packing.split(padded.view(len(padded), 3, self.num_heads, -1)):  # (b, n, 3, H, d)
            queries, keys, values = group.permute(2, 0, 3, 1, 4)  # (b, H, n, d) each
            attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)  # (b, H, n, d)
            outputs.append(attended.transpose(1, 2).flatten(2).flatten(0, 1))  # (b * n, D)
        return packing.pack(torch.cat(outputs))  # (E, D)

    def _drop(self, values: Tensor) -> Tensor:
        return drop(values, self.dropout, is_training=self.training)
