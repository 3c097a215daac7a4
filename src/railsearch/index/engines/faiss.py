"""FAISS as a first-stage engine: its flat index is exact; its graphs, inverted lists and quantisers may miss rows."""

import math
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.foundation.extras import missing_extra
from railsearch.foundation.inputs import as_choice, check_count
from railsearch.index.engines.contract import NO_ROW, Nearest
from railsearch.index.engines.faiss_arrays import FaissIndex, UnusableArraysError, fill_index, take_arrays
from railsearch.kernels import RowFilter

Floats: TypeAlias = npt.NDArray[np.float32]

POINTS_PER_LIST = 39
"""FAISS asks for at least this many training points for each inverted list."""
LEAST_LISTS = 4
"""Lists that ivf searches by default even if the table has few."""
MOST_EFFORT = 2**31 - 1
MOST_LINKS = 512


class FaissKind(StrEnum):
    """The kinds of FAISS index."""

    FLAT = "flat"
    HNSW = "hnsw"
    IVF = "ivf"
    SQ8 = "sq8"


@dataclass(frozen=True, slots=True)
class Faiss:
    """Search by FAISS, on the CPU; needs the extra `faiss` (from a checkout: `pip install '.[faiss]'`).

    In an index folder, tables of hnsw, ivf and sq8 are kept on disk once they have been built. Railsearch stores the
    arrays of a FAISS index, checks every number that FAISS would follow as an address, and never reads FAISS's own
    file format, which must not be read from an untrusted source.

    Args:
        kind: flat (exact), hnsw (a graph), ivf (inverted lists) or sq8 (one byte for each value). All but flat may miss
            rows, so their answers are never certified.
        effort: how many rows hnsw considers (efSearch), or how many lists ivf searches (nprobe). A greater effort
            finds more and takes longer. By default 64 rows, and an eighth of the lists, at least 4.
        links: neighbours of a row in the graph of hnsw (M).
    """

    kind: FaissKind | str = FaissKind.FLAT
    effort: int | None = None
    links: int = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_choice(FaissKind, self.kind, name="kind"))
        check_count(self.links, name="links", minimum=2, maximum=MOST_LINKS)
        if self.effort is not None:
            check_count(self.effort, name="effort", maximum=MOST_EFFORT)

    @property
    def key(self) -> str:
        """The settings that this kind uses, as a constructor call."""
        has_effort = self.effort is not None and self.kind in {FaissKind.HNSW, FaissKind.IVF}
        effort = f", effort={self.effort}" if has_effort else ""
        return f"Faiss({str(self.kind)!r}{effort}{self._links_text})"

    @property
    def table_key(self) -> str:
        """The settings that tables depend on; effort only counts when they are searched."""
        return f"Faiss({str(self.kind)!r}{self._links_text})"

    @property
    def _links_text(self) -> str:
        return f", links={self.links}" if self.kind == FaissKind.HNSW else ""

    @property
    def is_exact(self) -> bool:
        """Whether the kind is flat: the others may miss rows or change their values."""
        return self.kind == FaissKind.FLAT

    @property
    def sees_every_row(self) -> bool:
        """Always false: FAISS does not return the dot products of all rows."""
        return False

    @property
    def supports_threshold(self) -> bool:
        """Whether the kind is flat: the others may miss rows above a threshold."""
        return self.kind == FaissKind.FLAT

    @property
    def is_persistent(self) -> bool:
        """Whether the kind takes time to build; a flat index is only a copy of the vectors."""
        return self.kind != FaissKind.FLAT

    @property
    def max_n(self) -> int | None:
        """Always None: FAISS has no limit on the CPU."""
        return None

    def table_bytes(self, vectors: Tensor) -> int:
        """Return the least memory of a table of vectors (N, d): a copy of them, and the links of a graph."""
        copied = vectors.numel() * (1 if self.kind == FaissKind.SQ8 else 4)
        return copied + (len(vectors) * 2 * self.links * 4 if self.kind == FaissKind.HNSW else 0)

    def check_available(self, dim: int | None = None) -> None:
        """Check that FAISS is installed."""
        _import_faiss()

    def build(self, name: str, vectors: Tensor) -> "FaissTable":
        """Copy the vectors (N, d) into a FAISS index."""
        rows = _as_array(vectors)  # (N, d)
        index = self._empty_index(*rows.shape)
        if len(rows):
            index.train(rows)
            index.add(rows)
        return self._table(index, len(rows))

    def open(self, name: str, vectors: Tensor, stored: bytes) -> "FaissTable":
        """Put the stored graph, lists or codes together with the vectors (N, d)."""
        if not self.is_persistent or not len(vectors):
            return self.build(name, vectors)
        rows = _as_array(vectors)  # (N, d)
        index = self._empty_index(*rows.shape)
        try:
            fill_index(_import_faiss(), index, str(self.kind), rows, safetensors.numpy.load(stored))
        except (UnusableArraysError, safetensors.SafetensorError, KeyError, TypeError) as error:
            raise EngineError(f"the stored table {name} of {self.key} is not usable: {error}.") from error
        return self._table(index, len(rows))

    def _empty_index(self, num_rows: int, dim: int) -> FaissIndex:
        faiss = _import_faiss()
        metric = faiss.METRIC_INNER_PRODUCT
        index: Any
        if self.kind == FaissKind.HNSW:
            index = faiss.IndexHNSWFlat(dim, self.links, metric)
        elif self.kind == FaissKind.IVF:
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, _num_lists(num_rows), metric)
            index.cp.min_points_per_centroid = 1  # a small table needs no warning
        elif self.kind == FaissKind.SQ8:
            index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, metric)
        else:
            index = faiss.IndexFlatIP(dim)
        empty: FaissIndex = index
        return empty

    def _table(self, index: FaissIndex, num_rows: int) -> "FaissTable":
        default = max(LEAST_LISTS, _num_lists(num_rows) // 8) if self.kind == FaissKind.IVF else 64
        return FaissTable(self, index, default if self.effort is None else self.effort)


class FaissTable:
    """A FAISS index of one table.

    A filter for all queries becomes a FAISS selector. For rows that are hidden from one query only, the table asks
    FAISS for as many more rows and removes the hidden ones.
    """

    def __init__(self, engine: Faiss, index: FaissIndex, effort: int) -> None:
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

    def best_with_bounds(self, vectors: Tensor, n: int, row_filter: RowFilter | None, bounds: Tensor) -> Nearest:
        """Raise an error: FAISS does not return the dot products of all rows."""
        raise EngineError(f"{self._engine.key} has no bounds; check sees_every_row before you ask for them.")

    def above(self, vectors: Tensor, thresholds: Tensor, row_filter: RowFilter | None) -> Tensor:
        """Return which rows (B, N) have a dot product >= the query's threshold (B,) with any of its vectors."""
        num_rows = self._index.ntotal
        is_above = torch.zeros(len(vectors), num_rows, dtype=torch.bool, device=vectors.device)  # (B, N)
        for query, (own, threshold) in enumerate(zip(vectors, thresholds.tolist(), strict=True)):
            # FAISS returns rows that are strictly above its radius.
            radius = float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
            _, _, rows = self._index.range_search(_as_array(own), radius)  # one query's vectors: V * N rows at most
            is_above[query, torch.from_numpy(rows).to(vectors.device)] = True
        if row_filter is not None:
            if row_filter.is_allowed is not None:
                is_above &= row_filter.is_allowed
            is_above[row_filter.queries, row_filter.rows] = False
        return is_above

    def to_bytes(self) -> bytes:
        """Return the graph, lists or codes as safetensors; the vectors are not among them."""
        return safetensors.numpy.save(take_arrays(_import_faiss(), self._index, str(self._engine.kind)))

    def close(self) -> None:
        """Do nothing: memory is freed with the last reference."""

    def _parameters(self, row_filter: RowFilter | None, num_asked: int) -> object:
        faiss = _import_faiss()
        settings: dict[str, object] = {}
        if row_filter is not None and row_filter.is_allowed is not None:
            bitmap = np.packbits(row_filter.is_allowed.cpu().numpy(), bitorder="little")
            settings["sel"] = faiss.IDSelectorBitmap(bitmap)
        if self._engine.kind == FaissKind.HNSW:
            # FAISS reserves memory for as many rows as it is told, even if the table has fewer.
            effort = min(max(self._effort, num_asked), self._index.ntotal)
            return faiss.SearchParametersHNSW(efSearch=effort, **settings)
        if self._engine.kind == FaissKind.IVF:
            return faiss.SearchParametersIVF(nprobe=min(self._effort, _num_lists(self._index.ntotal)), **settings)
        return faiss.SearchParameters(**settings)


def _is_unwanted(rows: Tensor, row_filter: RowFilter, num_rows: int) -> Tensor:
    """Return whether each of the rows (B, V, n) is hidden from its query."""
    queries = torch.arange(len(rows), device=rows.device)[:, None, None]  # (B, 1, 1)
    is_unwanted: Tensor = torch.isin(queries * num_rows + rows, row_filter.queries * num_rows + row_filter.rows)
    return is_unwanted & (rows != NO_ROW)  # (B, V, n)


def _num_lists(num_rows: int) -> int:
    """Return the number of inverted lists for a table of this size."""
    return max(1, min(4 * math.isqrt(num_rows), num_rows // POINTS_PER_LIST))


def _as_array(vectors: Tensor) -> Floats:
    return np.ascontiguousarray(vectors.detach().cpu().to(torch.float32).numpy())


def _import_faiss() -> ModuleType:
    try:
        import faiss  # noqa: PLC0415  (an extra, imported only if it is used)
    except ImportError as error:
        raise missing_extra("faiss", "faiss") from error
    return faiss
