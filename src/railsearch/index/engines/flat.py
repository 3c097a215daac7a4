"""The default engine: a plain scan of all vectors. It is exact and builds nothing."""

from dataclasses import dataclass

from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.kernels import Nearest, RowFilter, choose_scan


@dataclass(frozen=True, slots=True)
class Flat:
    """A plain scan of every row.

    It has no thresholds: without them, a two-pass search scans the items itself, with a threshold that rises as it
    finds better items.
    """

    key = "Flat()"
    table_key = "Flat()"
    is_exact = True
    sees_every_row = True
    supports_threshold = False
    is_persistent = False
    max_n = None

    def check_available(self, dim: int | None = None) -> None:
        """Do nothing: a scan is always available."""

    def build(self, name: str, vectors: Tensor) -> "FlatTable":
        """Keep the vectors as they are."""
        return FlatTable(vectors)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> "FlatTable":
        """Keep the vectors as they are; nothing is stored."""
        return FlatTable(vectors)


@dataclass(frozen=True, slots=True, eq=False)
class FlatTable:
    """Vectors to scan, in any precision. Of equal scores, the smaller row is better."""

    vectors: Tensor  # (N, d)

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        return choose_scan(vectors.device)(vectors, self.vectors, n, row_filter)

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Do what `best` does, and raise bounds (B, N) to the best dot product of each row and query."""
        return choose_scan(vectors.device)(vectors, self.vectors, n, row_filter, bounds=bounds)

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Raise an error: see Flat."""
        raise EngineError("Flat() has no thresholds; check supports_threshold before you ask for them.")

    def to_bytes(self) -> bytes:
        """Return no bytes: a table consists of its vectors only."""
        return b""

    def close(self) -> None:
        """Do nothing: the vectors belong to the index."""
