"""FAISS as a first stage: its flat index is exact, its graphs, lists and quantisers are approximate."""

import math
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from railsearch.foundation.errors import MissingExtraError
from railsearch.foundation.inputs import as_choice, check_count
from railsearch.index.engines.contract import NO_ROW, Nearest
from railsearch.kernels import RowFilter

Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.int64]

POINTS_PER_LIST = 39
"""FAISS asks for at least so many training points for each of the lists of an inverted file."""


class FaissKind(StrEnum):
    """Which of FAISS's indexes."""

    FLAT = "flat"
    HNSW = "hnsw"
    IVF = "ivf"
    SQ8 = "sq8"


@dataclass(frozen=True, slots=True)
class Faiss:
    """Search tables with FAISS, on the CPU (`pip install 'railsearch[faiss]'`).

    Args:
        kind: flat (exact), hnsw (a graph), ivf (inverted lists) or sq8 (a byte a value); all but flat may miss rows,
            so that no answer is certified.
        effort: how hard to look: the rows that hnsw keeps in sight (efSearch), the lists that ivf looks into
            (nprobe). More finds more and takes longer. By default 64 rows, and an eighth of the lists.
        links: neighbours of a row in the graph of hnsw (M).
    """

    kind: FaissKind | str = FaissKind.FLAT
    effort: int | None = None
    links: int = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_choice(FaissKind, self.kind, name="kind"))
        check_count(self.links, name="links", minimum=2)
        if self.effort is not None:
            check_count(self.effort, name="effort")

    @property
    def is_exact(self) -> bool:
        """Only the flat index looks at every row as it is."""
        return self.kind == FaissKind.FLAT

    @property
    def supports_threshold(self) -> bool:
        """Only the flat index is asked for all rows above a threshold: others could miss some."""
        return self.kind == FaissKind.FLAT

    @property
    def max_n(self) -> int | None:
        """The CPU indexes have no limit."""
        return None

    def build(self, vectors: Tensor) -> "FaissTable":
        """Copy the vectors (N, d) into a FAISS index."""
        faiss = _import_faiss()
        rows = _as_array(vectors)  # (N, d)
        num_rows, dim = rows.shape
        num_lists = max(1, min(4 * math.isqrt(num_rows), num_rows // POINTS_PER_LIST))
        metric = faiss.METRIC_INNER_PRODUCT
        if self.kind == FaissKind.HNSW:
            index = faiss.IndexHNSWFlat(dim, self.links, metric)
        elif self.kind == FaissKind.IVF:
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, num_lists, metric)
            index.cp.min_points_per_centroid = 1  # a small table needs no warning
        elif self.kind == FaissKind.SQ8:
            index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, metric)
        else:
            index = faiss.IndexFlatIP(dim)
        if num_rows:
            index.train(rows)
            index.add(rows)
        default = max(1, num_lists // 8) if self.kind == FaissKind.IVF else 64
        return FaissTable(self, index, default if self.effort is None else self.effort)


class _FaissIndex(Protocol):
    """What this module calls of a FAISS index, which has no types of its own."""

    ntotal: int

    def search(self, vectors: Floats, n: int, *, params: object) -> tuple[Floats, Rows]: ...

    def range_search(self, vectors: Floats, radius: float) -> tuple[Rows, Floats, Rows]: ...


class FaissTable:
    """A FAISS index of one table. Filters are FAISS's own selectors; what a query has seen is asked for on top."""

    def __init__(self, engine: Faiss, index: _FaissIndex, effort: int) -> None:
        self._engine = engine
        self._index = index
        self._effort = effort

    def best(self, vectors: Tensor, n: int, row_filter: RowFilter | None) -> Nearest:
        """Find the n best rows for each of the vectors (B, V, d)."""
        num_queries, num_vectors, _ = vectors.shape
        num_rows = self._index.ntotal
        num_unwanted = 0
        if row_filter is not None and len(row_filter.queries):
            num_unwanted = int(torch.bincount(row_filter.queries).max())
        num_asked = min(n + num_unwanted, num_rows)
        if not num_asked or not num_queries:
            empty = vectors.new_empty(num_queries, num_vectors, min(n, num_rows))  # (B, V, n)
            return Nearest(torch.full_like(empty, NO_ROW, dtype=torch.int64), empty.fill_(-torch.inf))
        found, found_rows = self._index.search(
            _as_array(vectors.flatten(0, 1)), num_asked, params=self._parameters(row_filter, num_asked)
        )
        shape = (num_queries, num_vectors, num_asked)
        rows = torch.from_numpy(found_rows).view(shape).to(vectors.device)
        scores = torch.from_numpy(found).view(shape).to(vectors).masked_fill(rows == NO_ROW, -torch.inf)
        if num_unwanted and row_filter is not None:
            scores = scores.masked_fill(_is_unwanted(rows, row_filter, num_rows), -torch.inf)  # (B, V, n + unwanted)
        scores, order = scores.sort(dim=-1, descending=True, stable=True)
        scores, rows = scores[..., :n], rows.gather(-1, order)[..., :n]  # (B, V, n)
        return Nearest(rows.masked_fill(scores == -torch.inf, NO_ROW), scores)

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Say which rows (B, N) some vector of the query meets with at least its threshold (B,)."""
        num_rows = self._index.ntotal
        is_above = torch.zeros(len(vectors), num_rows, dtype=torch.bool, device=vectors.device)  # (B, N)
        for query, (own, threshold) in enumerate(zip(vectors, thresholds.tolist(), strict=True)):
            # FAISS gives what is strictly above its radius.
            radius = float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
            _, _, rows = self._index.range_search(_as_array(own), radius)  # one query's vectors: V * N rows at most
            is_above[query, torch.from_numpy(rows).to(vectors.device)] = True
        if row_filter is not None:
            if row_filter.is_allowed is not None:
                is_above &= row_filter.is_allowed
            is_above[row_filter.queries, row_filter.rows] = False
        return is_above

    def _parameters(self, row_filter: RowFilter | None, num_asked: int) -> object:
        faiss = _import_faiss()
        settings: dict[str, object] = {}
        if row_filter is not None and row_filter.is_allowed is not None:
            bitmap = np.packbits(row_filter.is_allowed.cpu().numpy(), bitorder="little")
            settings["sel"] = faiss.IDSelectorBitmap(bitmap)
        if self._engine.kind == FaissKind.HNSW:
            return faiss.SearchParametersHNSW(efSearch=max(self._effort, num_asked), **settings)
        if self._engine.kind == FaissKind.IVF:
            return faiss.SearchParametersIVF(nprobe=self._effort, **settings)
        return faiss.SearchParameters(**settings)


def _is_unwanted(rows: Tensor, row_filter: RowFilter, num_rows: int) -> Tensor:
    """Whether each of the rows (B, V, n) is hidden from its query."""
    queries = torch.arange(len(rows), device=rows.device)[:, None, None]  # (B, 1, 1)
    is_unwanted: Tensor = torch.isin(queries * num_rows + rows, row_filter.queries * num_rows + row_filter.rows)
    return is_unwanted & (rows != NO_ROW)  # (B, V, n)


def _as_array(vectors: Tensor) -> Floats:
    return np.ascontiguousarray(vectors.detach().cpu().to(torch.float32).numpy())


def _import_faiss() -> ModuleType:
    try:
        import faiss  # noqa: PLC0415  (an extra: only who asks for it needs it)
    except ImportError as error:
        raise MissingExtraError("faiss is not installed; pip install 'railsearch[faiss]'.") from error
    return faiss
