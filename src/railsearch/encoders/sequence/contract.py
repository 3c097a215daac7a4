"""What a sequence encoder must offer so that it can be trained and served."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol, Self, runtime_checkable

from torch import Tensor, nn
from torch.nn import Parameter

from railsearch.encoders.sequence.histories import Histories
from railsearch.similarity.contract import ConfigValue


@runtime_checkable
class SequenceEncoder(Protocol):
    """Turns each position of a history into a query for the item that comes next."""

    kind: ClassVar[str]
    dim: int
    num_items: int
    max_length: int
    item_table: nn.Embedding
    training: bool

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this encoder anew."""
        ...

    def __call__(self, histories: Histories) -> Tensor:
        """Encode every position: (E, D), in the order of the histories."""
        ...

    def forward(self, histories: Histories) -> Tensor:
        """Encode every position: (E, D), in the order of the histories."""
        ...

    def embed_items(self, rows: Tensor | None = None) -> Tensor:
        """Give items as a similarity takes them: (n, D), all items where no rows are given."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Go through all weights."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Give all weights by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True) -> object:
        """Take all weights by name."""
        ...

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on or off."""
        ...
