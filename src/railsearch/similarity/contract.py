"""The contract that a similarity must keep to be trained, indexed and searched."""

from collections.abc import Iterator, Mapping
from typing import Protocol, Self, TypeAlias, runtime_checkable

from torch import Tensor
from torch.nn import Parameter

from railsearch.foundation.errors import InvalidInputError
from railsearch.similarity.parts import Comparison, ItemParts, QueryParts

ConfigValue: TypeAlias = bool | int | float | str | list[str] | None
"""A value of a configuration; JSON stores it without loss."""


@runtime_checkable
class Similarity(Protocol):
    """Two sides and a join; the item side is computed once and kept.

    The promise that makes search possible: a score is never above the best component score of its query-item pair.
    A similarity that keeps this promise sets `is_certifiable`.
    """

    num_query_components: int
    num_item_components: int
    component_dim: int
    temperature: float
    """A component score is the dot product of two components divided by this."""
    is_certifiable: bool
    training: bool

    @property
    def takes_user_ids(self) -> bool:
        """Whether the query side uses user ids besides the queries."""
        ...

    @property
    def values_per_pair(self) -> int:
        """Values that scoring holds for one query-item pair; kernels size their blocks by it, to fit the cache."""
        ...

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this similarity again."""
        ...

    @property
    def query_shape(self) -> tuple[int, ...]:
        """Shape of one query's input: (D,) for an embedding, (Pq, d) for ready components."""
        ...

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of one item's input: (D,) for an embedding, (Px, d) for ready components."""
        ...

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        """Compute the query side."""
        ...

    def item_parts(self, items: Tensor) -> ItemParts:
        """Compute the item side; done once for each item."""
        ...

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        """Compare every query with every item."""
        ...

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        """Compare each query with its own candidates."""
        ...

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score (B, N) of every query-item pair, which no score exceeds."""
        ...

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the scores (B, N) of every query with every item."""
        ...

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        """Return the scores (B, C) of each query with its own candidates."""
        ...

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        """Return the l2 penalty on these users' own weights; zero if there are none."""
        ...

    def parameters(self) -> Iterator[Parameter]:
        """Return the weights to train."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return every tensor by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> object:
        """Load every tensor by name."""
        ...

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on or off."""
        ...


def check_similarity(similarity: object) -> None:
    """Check that the argument is a similarity, not a class or anything else."""
    if isinstance(similarity, type) or not isinstance(similarity, Similarity):
        given = similarity.__name__ if isinstance(similarity, type) else f"a {type(similarity).__name__}"
        raise InvalidInputError(f"similarity is {given}; give a similarity such as MixtureOfLogits(...).")
