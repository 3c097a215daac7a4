"""The contract of a kernel: the arithmetic under every search strategy.

A kernel is bound to one similarity. Kernels differ in speed only: each returns the same answers, up to its roundoff.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from railsearch.kernels.row_filter import RowFilter
from railsearch.similarity import ItemParts, QueryParts

NO_ROW = -1
"""Padding at the end of a list of rows that has fewer rows than places."""


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """Rows of a table with the best dot products, best first, for each of V vectors of each query."""

    rows: Tensor  # (B, V, n) int64, NO_ROW after the last row
    scores: Tensor  # (B, V, n), minus infinity after the last row


@dataclass(frozen=True, slots=True, eq=False)
class BestByComponent:
    """The best rows of each component pair, and the rows with the best bounds, both best first.

    A list that ends early has NO_ROW and minus infinity after its last row.
    """

    rows: Tensor  # (B, P, n) int64
    scores: Tensor  # (B, P, n)
    bound_rows: Tensor  # (B, m) int64
    bounds: Tensor  # (B, m)


@dataclass(frozen=True, slots=True, eq=False)
class BestAbove:
    """The best of the rows whose bound reaches a threshold, and what is known of the others."""

    scores: Tensor  # (B, K) best first, minus infinity after the last row
    rows: Tensor  # (B, K) int64
    num_scored: Tensor  # (B,) int64
    best_skipped: Tensor  # (B,) the best bound of a row that was not scored; minus infinity if there is none


@dataclass(frozen=True, slots=True)
class Roundoff:
    """The error of one arithmetic operation: at most `relative` times its result, plus `underflow`."""

    relative: float
    underflow: float
    """The greatest value that may be rounded to zero."""


class ItemRows(Protocol):
    """Item parts that can be read row by row.

    Items that lie in several pieces, one after the other, may also have a method `pieces_of(rows)`: it returns all
    ItemParts in the order of rows, of which a kernel may read the given rows (B, C) where they lie, and no others.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor) -> ItemParts:
        """Return the parts of rows (B, C): components (B, C, Px, d) and gate (B, C, P)."""
        ...


class Scan(Protocol):
    """An exact search of one table by dot product."""

    def __call__(
        self, vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
    ) -> Nearest:
        """Return the n best rows of the table (N, d) for each of the vectors (B, V, d).

        Of equal dot products the smaller row is better. With `bounds` (B, N), the scan also raises each bound in
        place to the best dot product of its row and query. A row that the filter hides keeps its bound.
        """
        ...


@runtime_checkable
class Kernel(Protocol):
    """Scores, bounds and dot products of many query-item pairs under one similarity."""

    @property
    def name(self) -> str:
        """A name for reports, such as "torch" or "native (avx2)"."""
        ...

    @property
    def roundoff(self) -> Roundoff:
        """The rounding error of one operation. Certificates add it up."""
        ...

    @property
    def is_bit_stable(self) -> bool:
        """Whether the score of a query-item pair never depends on the pairs that are computed beside it."""
        ...

    def score(self, query_parts: QueryParts, item_parts: ItemParts, first: int, last: int) -> Tensor:
        """Return the scores (B, last - first) of every query with the rows from first to last - 1."""
        ...

    def score_candidates(self, query_parts: QueryParts, items: ItemRows, candidates: Tensor) -> Tensor:
        """Return the scores (B, C) of each query with its own rows, the candidates (B, C)."""
        ...

    def top_k(
        self, query_parts: QueryParts, item_parts: ItemParts, k: int, row_filter: RowFilter | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows (B, K) of the k best items of each query, best first; of equal scores the smaller row.

        If the filter leaves a query fewer than k items, the rest of its scores are minus infinity.
        """
        ...

    def scan(
        self, vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
    ) -> Nearest:
        """Return the n best rows of a table by dot product; see `Scan`."""
        ...

    def top_k_above(
        self,
        query_parts: QueryParts,
        item_parts: ItemParts,
        k: int,
        thresholds: Tensor,
        row_filter: RowFilter | None = None,
    ) -> BestAbove:
        """Return the k best of the rows whose bound is at least the threshold (B,) of their query.

        A kernel may score rows below the threshold too, if that is cheaper than to skip them.
        """
        ...

    def best_by_component(
        self, query_parts: QueryParts, item_parts: ItemParts, n: int, m: int, row_filter: RowFilter | None = None
    ) -> BestByComponent:
        """Return the n best rows of each component pair, and the m rows with the best bounds.

        Of equal scores the smaller row is better. If there are fewer rows, all of them are returned.
        """
        ...

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score (B, N) of every query-item pair."""
        ...
