"""The default engine: a plain scan of all vectors. It is exact, and builds nothing unless it scans in int8."""

from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.foundation.inputs import as_choice
from railsearch.kernels import Int8Table, Nearest, RowFilter, choose_scan, int8_table_bytes, make_int8_table


class ScanPrecision(StrEnum):
    """The numbers that a scan multiplies first. The result is the same, in every bit."""

    FULL = "full"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, repr=False)
class Flat:
    """A plain scan of every row.

    It has no thresholds: without them, a two-pass search scans the items itself, with a threshold that rises as it
    finds better items.

    Args:
        scan: "full", or "int8" for a scan that reads a fourth of the memory: the rows are also kept in int8, with
            proven bounds of the error, and those that may be among the best are read again in full precision. Without
            the native kernels, it is the same as "full".
    """

    scan: ScanPrecision | str = ScanPrecision.FULL

    table_key = "Flat()"
    is_exact = True
    sees_every_row = True
    supports_threshold = False
    is_persistent = False
    max_n = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scan", as_choice(ScanPrecision, self.scan, name="scan"))

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """The engine as text."""
        return "Flat()" if self.scan is ScanPrecision.FULL else f"Flat(scan='{self.scan}')"

    def table_bytes(self, vectors: Tensor) -> int:
        """Return the least memory that a table of vectors (N, d) takes besides them; reads no values."""
        return int8_table_bytes(vectors) if self.scan is ScanPrecision.INT8 else 0

    def check_available(self, dim: int | None = None) -> None:
        """Do nothing: a scan is always available."""

    def build(self, name: str, vectors: Tensor) -> "FlatTable":
        """Keep the vectors as they are, and make an int8 copy if the scan uses it.

        The copy is never stored: it takes less time to make than to check, and a folder cannot hold a wrong one.
        """
        return FlatTable(vectors, make_int8_table(vectors) if self.scan is ScanPrecision.INT8 else None)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> "FlatTable":
        """Build the table; nothing is stored."""
        return self.build(name, vectors)


@dataclass(frozen=True, slots=True, eq=False)
class FlatTable:
    """Vectors to scan, in any precision. Of equal scores, the smaller row is better."""

    vectors: Tensor  # (N, d)
    int8: Int8Table | None = None

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        return choose_scan(vectors.device, self.int8)(vectors, self.vectors, n, row_filter)

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
