"""The contract of a search strategy."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from railsearch.index.corpus import Corpus
from railsearch.kernels import RowFilter
from railsearch.similarity import QueryParts


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The rows that a strategy found, best first, and the ceiling of those that it did not score."""

    rows: Tensor  # (B, K) int64
    scores: Tensor  # (B, K), minus infinity after the last item if there are fewer than K
    ceiling: Tensor  # (B,)
    num_scored: Tensor  # (B,) int64


@runtime_checkable
class Strategy(Protocol):
    """A way to find the k best rows.

    A strategy that allocates much may also have a method `memory_needed(corpus, num_queries, k)`. It returns the least
    number of bytes that one call of `find_rows` allocates; a search that needs more than there is does not start.
    """

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        ...


@runtime_checkable
class FloorStrategy(Strategy, Protocol):
    """A strategy that can leave out rows below a score that is known from elsewhere: the shards of one index."""

    def find_rows(
        self,
        corpus: Corpus,
        query_parts: QueryParts,
        k: int,
        row_filter: RowFilter | None,
        *,
        floor: Tensor | None = None,
    ) -> Found:
        """Find the k best rows of each query; rows whose score is below its floor (B,) may be missing.

        The ceiling is then a bound for rows above the floor only as far as it exceeds the floor: no row that is
        missing has a score above the greater one of the two.
        """
        ...
