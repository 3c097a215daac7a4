"""Calls to an engine that turn its failures, and answers of the wrong form, into an EngineError that names it."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from railsearch.foundation.errors import EngineError, RailsearchError
from railsearch.index.engines.contract import NO_ROW, Engine, Nearest, Table
from railsearch.kernels import RowFilter


@contextlib.contextmanager
def blaming(engine: Engine, action: str) -> Iterator[None]:
    """Turn an exception of an engine during an action into an EngineError; railsearch's own errors pass through."""
    try:
        yield
    except (RailsearchError, MemoryError):
        raise
    except Exception as error:
        raise EngineError(
            f"{engine.key} failed to {action} ({type(error).__name__}: {error}); "
            "check the engine with railsearch.testing.check_engine."
        ) from error


class GuardedTable:
    """A table of an engine whose answers are checked for their form; the engine itself must make them correct."""

    def __init__(self, engine: Engine, table: Table, num_rows: int) -> None:
        self._engine = engine
        self._table = table
        self._num_rows = num_rows

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        with blaming(self._engine, "search a table"):
            return self._checked(self._table.best(vectors, n, row_filter), vectors, n)

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Do what `best` does, and raise bounds (B, N) to the best dot product of each row and query."""
        with blaming(self._engine, "scan a table"):
            return self._checked(self._table.best_with_bounds(vectors, n, row_filter, bounds), vectors, n)

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Return which rows (B, N) have a dot product >= the query's threshold (B,) with any of its vectors."""
        with blaming(self._engine, "search a table by threshold"):
            found = self._table.above(vectors, thresholds, row_filter)  # (B, N)
            self._check_form("above", found, (len(vectors), self._num_rows), torch.bool)
            return found

    def to_bytes(self) -> bytes:
        """Return the bytes that `Engine.open` needs."""
        with blaming(self._engine, "store a table"):
            return self._table.to_bytes()

    def close(self) -> None:
        """Release what the table holds."""
        with blaming(self._engine, "close a table"):
            self._table.close()

    def _checked(self, found: Nearest, vectors: Tensor, n: int) -> Nearest:
        shape = (*vectors.shape[:2], min(n, self._num_rows))
        self._check_form("best", found.rows, shape, torch.int64)
        self._check_form("best", found.scores, shape, vectors.dtype)
        if found.rows.numel():
            least, greatest = (int(row) for row in torch.aminmax(found.rows))
            if least < NO_ROW or greatest >= self._num_rows:
                wrong = least if least < NO_ROW else greatest
                raise EngineError(f"{self._engine.key} returned row {wrong} of a table of {self._num_rows} rows.")
        return found

    def _check_form(self, method: str, found: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if tuple(found.shape) != shape or found.dtype != dtype:
            raise EngineError(
                f"{self._engine.key} returned {found.dtype} of shape {tuple(found.shape)} from `{method}` but {dtype} "
                f"of shape {shape} is needed; check the engine with railsearch.testing.check_engine."
            )
