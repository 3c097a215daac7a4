"""What a first-stage engine must offer; `railsearch.testing.check_engine` holds it to that."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from railsearch.kernels import RowFilter

NO_ROW = -1
"""Stands where a list of rows has nothing more to give."""


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """Rows of a table with the best dot products, best first, for each of V vectors of each query."""

    rows: Tensor  # (B, V, n) int64, NO_ROW where there is nothing more to give
    scores: Tensor  # (B, V, n), minus infinity there


class Table(Protocol):
    """Vectors that an engine has made ready to be searched; never changed."""

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d), or all where the table has fewer.

        Hidden rows of a query are never given to any of its vectors, and do not count among its n.
        """
        ...

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Say which rows (B, N) some vector of the query meets with a dot product of at least its threshold (B,).

        Only where the engine has `supports_threshold`.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """A way to search tables: a small frozen choice, such as Flat() or Faiss("hnsw")."""

    @property
    def is_exact(self) -> bool:
        """Whether `best` never misses a row; a search with an engine that may miss some has an infinite ceiling."""
        ...

    @property
    def supports_threshold(self) -> bool:
        """Whether tables can give all rows above a threshold."""
        ...

    @property
    def max_n(self) -> int | None:
        """The most rows that `best` can be asked for; None for no limit."""
        ...

    def build(self, vectors: Tensor) -> Table:
        """Make vectors (N, d) ready to be searched."""
        ...
