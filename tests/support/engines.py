"""Engines that tests need: one with a limit, and one with every capability, right or broken on purpose."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.index.engines import FlatTable, Nearest
from railsearch.kernels import RowFilter


@dataclass(frozen=True)
class AtMost:
    """A scan that returns few rows at most, as services do, and has no optional capability."""

    max_n: int | None
    is_exact = True
    sees_every_row = False
    supports_threshold = False
    is_persistent = False

    @property
    def key(self) -> str:
        return f"AtMost({self.max_n})"

    @property
    def table_key(self) -> str:
        return self.key

    def check_available(self, dim: int | None = None) -> None:
        pass

    def build(self, name: str, vectors: Tensor) -> "AtMostTable":
        return AtMostTable(FlatTable(vectors), self.max_n)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> "AtMostTable":
        raise AssertionError("nothing was stored")


@dataclass(frozen=True)
class AtMostTable:
    table: FlatTable
    max_n: int | None

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        assert self.max_n is None or n <= self.max_n
        return self.table.best(vectors, n, row_filter)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Complete:
    """An exact engine with every optional capability; `fault` names one way in which it breaks the contract."""

    fault: str = ""
    is_exact = True
    sees_every_row = True
    supports_threshold = True
    is_persistent = True
    max_n = None

    @property
    def key(self) -> str:
        return {"key": "two\nlines", "key of the process": f"Complete at {id(self):#x}"}.get(self.fault, "Complete()")

    @property
    def table_key(self) -> str:
        return "Complete()"

    def check_available(self, dim: int | None = None) -> None:
        pass

    def build(self, name: str, vectors: Tensor) -> "CompleteTable":
        assert self.fault != "half precision" or vectors.dtype in {torch.float32, torch.float64}, "cannot take it"
        assert self.fault != "strides" or vectors.is_contiguous(), "cannot take it"
        return CompleteTable(vectors + 5e-5 if self.fault == "bias" else vectors, self.fault)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> "CompleteTable":
        if self.fault == "lost":
            return CompleteTable(vectors.flip(0), self.fault)
        if stored != CompleteTable(vectors, self.fault).to_bytes():
            raise (ZeroDivisionError if self.fault == "crash" else EngineError)(
                "these bytes are not those of the vectors"
            )
        return CompleteTable(vectors, self.fault)


class CompleteTable:
    def __init__(self, vectors: Tensor, fault: str) -> None:
        self._vectors, self._table, self._fault = vectors, FlatTable(vectors), fault

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        found = self._table.best(vectors, n, None if self._fault == "hidden" else row_filter)
        rows, scores = found.rows, found.scores
        if self._fault == "misses":
            more = self._table.best(vectors, n + 1, row_filter)
            rows, scores = more.rows[..., -rows.shape[2] :], more.scores[..., -rows.shape[2] :]
        elif self._fault == "twice":
            rows, scores = rows[..., :1].expand_as(rows), scores[..., :1].expand_as(scores)
        elif self._fault == "ascending":
            rows, scores = rows.flip(-1), scores.flip(-1)
        elif self._fault == "other rows":
            rows = rows.flip(-1)
        elif self._fault == "outside":
            rows = rows + len(self._vectors)
        elif self._fault == "int32":
            rows = rows.int()
        elif self._fault == "short":
            rows, scores = rows[..., :1], scores[..., :1]
        return Nearest(rows, scores)

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        if self._fault == "low bounds":
            return self.best(vectors, n, row_filter)
        if self._fault == "bounds of hidden rows":
            self._table.best_with_bounds(vectors, n, None, bounds)
        return self._table.best_with_bounds(vectors, n, row_filter, bounds)

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        if self._fault == "threshold":
            return torch.ones(len(vectors), len(self._vectors), dtype=torch.bool)
        scores = vectors @ self._vectors.to(vectors.dtype).T  # (B, V, N)
        if row_filter is not None:
            row_filter.hide(scores, 0)
        best = scores.amax(dim=1)  # (B, N)
        return (best >= thresholds[:, None]) & (best > -torch.inf)

    def to_bytes(self) -> bytes:
        return self._vectors.double().numpy().tobytes() + b"end"

    def close(self) -> None:
        pass
