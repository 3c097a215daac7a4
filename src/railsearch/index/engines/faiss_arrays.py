"""The arrays inside a FAISS index, taken out and put back, so that an index is not trained and built again.

FAISS follows the numbers in these arrays as addresses without checking them. Everything is checked here first, so
that even a forged file cannot make FAISS read outside its memory. The caller passes the FAISS module.
"""

from types import ModuleType
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.generic]
Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.int64]
Number = TypeVar("Number", np.int32, np.int64, np.float32, np.uint8)


class FaissIndex(Protocol):
    """The part of a FAISS index that the engine calls; FAISS ships no types."""

    ntotal: int

    def train(self, vectors: Floats) -> None:
        """Learn lists or ranges from the vectors (N, d)."""
        ...

    def add(self, vectors: Floats) -> None:
        """Add the vectors (N, d)."""
        ...

    def search(self, vectors: Floats, n: int, *, params: object) -> tuple[Floats, Rows]:
        """Return the scores and rows (B, n) of the best dot products."""
        ...

    def range_search(self, vectors: Floats, radius: float) -> tuple[Rows, Floats, Rows]:
        """Return where each list begins (B + 1,), and the scores and rows above the radius."""
        ...


class UnusableArraysError(Exception):
    """Arrays that cannot belong to such an index."""


def take_arrays(faiss: ModuleType, index: FaissIndex, kind: str) -> dict[str, Array]:
    """Return the results of training and building: a graph, inverted lists, or codes."""
    if not index.ntotal:
        return {}
    return {"hnsw": _take_hnsw, "ivf": _take_ivf, "sq8": _take_sq8}[kind](faiss, index)


def fill_index(faiss: ModuleType, index: FaissIndex, kind: str, rows: Floats, arrays: dict[str, Array]) -> None:
    """Fill an empty index with the vectors (N, d) and the arrays that `take_arrays` returned.

    Raises:
        UnusableArraysError: an array has the wrong form, or a number in it is out of range.
        KeyError: an array is missing.
    """
    {"hnsw": _fill_hnsw, "ivf": _fill_ivf, "sq8": _fill_sq8}[kind](faiss, index, rows, arrays)


def _take_hnsw(faiss: ModuleType, index: Any) -> dict[str, Array]:
    graph = index.hnsw
    return {
        "levels": faiss.vector_to_array(graph.levels),
        "neighbors": faiss.vector_to_array(graph.neighbors),
        "entry_point": np.array([graph.entry_point], dtype=np.int64),
    }


def _fill_hnsw(faiss: ModuleType, index: Any, rows: Floats, arrays: dict[str, Array]) -> None:
    """Check and fill a graph. Row i has levels[i] lists of neighbours, one for each level that it is on."""
    graph = index.hnsw
    ends = faiss.vector_to_array(graph.cum_nneighbor_per_level).astype(np.int64)  # (L,) begin of each level's list
    levels = _checked(arrays["levels"], np.int32, (len(rows),))  # (N,)
    _check(levels.min() >= 1 and levels.max() < len(ends), "a row has a level that the graph cannot have")
    offsets = np.concatenate([[0], np.cumsum(ends[levels])])  # (N + 1,)
    neighbors = _checked(arrays["neighbors"], np.int32, (int(offsets[-1]),))
    _check(neighbors.min() >= -1 and neighbors.max() < len(rows), "a neighbour is not a row")
    for level in range(1, int(levels.max())):
        (own,) = np.nonzero(levels > level)
        places = offsets[own][:, None] + np.arange(ends[level], ends[level + 1])  # (rows on this level, links)
        found = neighbors[places]  # (rows on this level, links), -1 after the last
        _check(bool((levels[found[found >= 0]] > level).all()), "a neighbour is not on the level of its row")
    entry_point = int(_checked(arrays["entry_point"], np.int64, (1,))[0])
    _check(0 <= entry_point < len(rows) and levels[entry_point] == levels.max(), "the entry point is not on top")
    index.storage.add(rows)
    faiss.copy_array_to_vector(levels, graph.levels)
    faiss.copy_array_to_vector(offsets.astype(np.uint64), graph.offsets)
    faiss.copy_array_to_vector(neighbors, graph.neighbors)
    graph.entry_point, graph.max_level = entry_point, int(levels.max()) - 1
    index.ntotal = len(rows)


def _take_ivf(faiss: ModuleType, index: Any) -> dict[str, Array]:
    lists = np.empty(index.ntotal, dtype=np.int64)  # (N,) the list of each row
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if size:
            lists[faiss.rev_swig_ptr(index.invlists.get_ids(number), size)] = number
    return {"centroids": index.quantizer.reconstruct_n(0, index.nlist), "lists": lists}


def _fill_ivf(faiss: ModuleType, index: Any, rows: Floats, arrays: dict[str, Array]) -> None:
    centroids = _checked(arrays["centroids"], np.float32, (index.nlist, rows.shape[1]))  # (lists, d)
    lists = _checked(arrays["lists"], np.int64, (len(rows),))  # (N,)
    _check(bool(np.isfinite(centroids).all()), "a centroid is not finite")
    _check(lists.min() >= 0 and lists.max() < index.nlist, "a row is in a list that does not exist")
    index.quantizer.add(centroids)
    index.is_trained = True
    index.add_core(len(rows), faiss.swig_ptr(rows), None, faiss.swig_ptr(lists))


def _take_sq8(faiss: ModuleType, index: Any) -> dict[str, Array]:
    return {"ranges": faiss.vector_to_array(index.sq.trained), "codes": faiss.vector_to_array(index.codes)}


def _fill_sq8(faiss: ModuleType, index: Any, rows: Floats, arrays: dict[str, Array]) -> None:
    ranges = _checked(arrays["ranges"], np.float32, (2 * rows.shape[1],))  # least value and width of each dimension
    codes = _checked(arrays["codes"], np.uint8, (rows.size,))
    _check(bool(np.isfinite(ranges).all()), "the range of a value is not finite")
    faiss.copy_array_to_vector(ranges, index.sq.trained)
    faiss.copy_array_to_vector(codes, index.codes)
    index.is_trained, index.ntotal = True, len(rows)


def _checked(array: Array, dtype: type[Number], shape: tuple[int, ...]) -> npt.NDArray[Number]:
    _check(array.dtype == dtype and array.shape == shape, f"an array is {array.dtype} {array.shape}, not {shape}")
    return np.ascontiguousarray(array).astype(dtype, copy=False)


def _check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise UnusableArraysError(problem)
