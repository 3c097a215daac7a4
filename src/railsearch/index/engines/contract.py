"""The contract of a first-stage engine; `railsearch.testing.check_engine` checks an implementation against it.

An engine answers one question: which rows of a table have the best dot products with a vector? An index has several
tables: one for the sum of each item's components and one for each component, in every segment. The index asks the
engine to build a table the first time that a search needs it. If the engine is persistent, the index keeps the bytes
of the table in its folder, and the next process opens the table from them instead of building it.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from railsearch.kernels import NO_ROW, Nearest, RowFilter

__all__ = ["NO_ROW", "Engine", "Nearest", "Table"]


class Table(Protocol):
    """Vectors that are ready to be searched. A table never changes; several threads may search it at the same time."""

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d), or all rows if the table has fewer.

        Rows that the filter hides from a query are never returned for it and do not count among its n.
        """
        ...

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Do what `best` does, and raise bounds (B, N) in place to the best dot product of each row and query.

        The bound of a row is the maximum over the query's vectors. A row that the filter hides keeps its bound.
        Called only if the engine has `sees_every_row`.
        """
        ...

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Return which rows (B, N) have a dot product >= the query's threshold (B,) with any of its vectors.

        Called only if the engine has `supports_threshold`.
        """
        ...

    def to_bytes(self) -> bytes:
        """Return the bytes that `Engine.open` needs besides the vectors. Called only if the engine `is_persistent`."""
        ...

    def close(self) -> None:
        """Release what the table holds, such as a connection. A closed table is not used again."""
        ...


@runtime_checkable
class Engine(Protocol):
    """A way to search tables: a small frozen dataclass of settings, such as Flat() or Faiss("hnsw")."""

    @property
    def key(self) -> str:
        """The engine and its settings as one line of text, without credentials.

        Equal engines have equal keys in every process. The index stores tuned strategies under this key.
        """
        ...

    @property
    def table_key(self) -> str:
        """The part of the key that tables depend on: engines with the same one can open each other's tables."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether `best` never misses a row. Searches with an engine that may miss rows certify nothing."""
        ...

    @property
    def sees_every_row(self) -> bool:
        """Whether tables have `best_with_bounds`, which makes certificates tighter. Only an exact engine can."""
        ...

    @property
    def supports_threshold(self) -> bool:
        """Whether tables have `above`."""
        ...

    @property
    def is_persistent(self) -> bool:
        """Whether tables have `to_bytes`: worth it if building takes much longer than reading."""
        ...

    @property
    def max_n(self) -> int | None:
        """The greatest n that `best` accepts; None for no limit."""
        ...

    def check_available(self, dim: int | None = None) -> None:
        """Check, without building anything, that tables can be built here.

        Args:
            dim: dimension of the vectors; None if it is not known yet.

        Raises:
            MissingExtraError: a library is not installed.
            EngineError: the engine cannot work, such as a server that does not answer.
        """
        ...

    def build(self, name: str, vectors: Tensor) -> Table:
        """Build a table of vectors (N, d).

        The name is unique: no two tables of any index share it. An engine that keeps its tables elsewhere, such as on
        a server, can keep them under this name.
        """
        ...

    def open(self, name: str, vectors: Tensor, stored: bytes) -> Table:
        """Open a table of vectors (N, d) from the bytes of its `to_bytes`. Called only if the engine `is_persistent`.

        The checksum of the bytes was checked, but a stranger who wrote the folder can write a checksum too. Check
        every number that is followed as an address. An exact engine must also check that the bytes fit the vectors,
        because answers are certified on its word.

        Raises:
            EngineError: the bytes cannot be used; the index then builds the table again.
        """
        ...
