"""The contract of sequence encoders, which training and serving rely on."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol, Self

from torch import Tensor
from torch.nn import Parameter

from railsearch.encoders.sequence.histories import Histories
from railsearch.encoders.sequence.item_table import ItemTable
from railsearch.similarity.contract import ConfigValue


class SequenceEncoder(Protocol):
    """An encoder that turns each position of a history into a query for the next item."""

    kind: ClassVar[str]
    dim: int
    max_length: int
    item_table: ItemTable
    training: bool

    @property
    def num_items(self) -> int:
        """Number of items."""
        ...

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this encoder again."""
        ...

    def __call__(self, histories: Histories) -> Tensor:
        """Return the encoding of every position (E, D), in the order of the histories."""
        ...

    def forward(self, histories: Histories) -> Tensor:
        """Return the encoding of every position (E, D), in the order of the histories."""
        ...

    def encode_padded(self, items: Tensor, times: Tensor, next_times: Tensor) -> Tensor:
        """Return the encoding (B, n, D) of every position of padded histories, by plain operations; for export.

        Histories start at the left. Padding on the right has no effect on positions to its left, and may be any item
        and time. There is no dropout and no check.

        Args:
            items: (B, n) rows of items.
            times: (B, n) seconds.
            next_times: (B, n) the time of each position's query for the next item.
        """
        ...

    def embed_items(self, rows: Tensor | None = None) -> Tensor:
        """Return the item embeddings of these rows (n, D), or of all items, for a similarity."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over all weights."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return all weights by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True) -> object:
        """Load all weights by name."""
        ...

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on or off."""
        ...
