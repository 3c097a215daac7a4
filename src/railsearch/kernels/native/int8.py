"""A table in int8 beside its rows in full precision: scans of it return the same rows and the same bits, sooner."""

import torch
from torch import Tensor

from railsearch.kernels.contract import Nearest
from railsearch.kernels.native.addresses import FilterAddresses, ItemAddresses, can_read_queries, can_read_table
from railsearch.kernels.native.library import chosen_isa, is_available, library
from railsearch.kernels.native.scan import scan
from railsearch.kernels.row_filter import RowFilter


def can_use_int8(table: Tensor) -> bool:
    """Return whether a table (N, d) can have an `Int8Table`."""
    return is_available() and can_read_table(table) and table.numel() > 0


class Int8Table:
    """The rows of a table (N, d) as whole numbers from -127 to 127, with one scale per row.

    A scan multiplies these, which needs a fourth of the memory traffic of fp32. The error of each product has a proven
    bound (see int8_table.h). Rows whose product may be among the best are read again in full precision, so the result
    is that of `scan` in every bit. If many rows are that close to each other, the scan goes on in full precision.

    Args:
        table: rows in fp32, fp16 or bf16 on a CPU. They must not change.
    """

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._rows = ItemAddresses.of_table(table)
        self._int8 = library.Int8Table(chosen_isa(), torch.get_num_threads(), self._rows.items, table.shape[1])

    @property
    def num_bytes(self) -> int:
        """The memory that it takes besides the table; 0 if the numbers are too great or too many to use int8."""
        return int(self._int8.num_bytes)

    def bounds(self, vectors: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what int8 alone knows of the scores of vectors (V, d), for tests of its error bounds.

        Returns lower and upper bounds (V, N), and which scores may be as great as the threshold (V,) of their vector.
        """
        low = torch.empty(len(vectors), len(self._table))  # (V, N)
        high, is_reached = torch.empty_like(low), torch.empty(low.shape, dtype=torch.bool)  # (V, N)
        own, own_thresholds = vectors.contiguous(), thresholds.contiguous()
        assert can_read_queries(own, own_thresholds)
        assert own.shape[1:] == self._table.shape[1:]
        assert own_thresholds.shape == own.shape[:1]
        is_usable = self._int8.is_usable and library.bound_int8(
            chosen_isa(),
            own.data_ptr(),
            len(own),
            self._int8,
            own_thresholds.data_ptr(),
            low.data_ptr(),
            high.data_ptr(),
            is_reached.data_ptr(),
        )
        assert is_usable, "the numbers are too great"
        return low, high, is_reached

    def __call__(
        self, vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
    ) -> Nearest:
        """Return the n best rows of the table for each of the vectors (B, V, d); see `railsearch.kernels.Scan`.

        With `bounds`, every dot product is needed, and the scan is in full precision.
        """
        assert table is self._table, "the int8 copy is that of another table"
        if bounds is not None or not can_read_queries(vectors) or not vectors.numel():
            return scan(vectors, table, n, row_filter, bounds=bounds)
        num_queries, num_vectors, dim = vectors.shape
        assert self._table.shape[1] == dim
        shape = (num_queries, num_vectors, min(n, len(self._table)))
        scores = torch.empty(shape, dtype=torch.float32)
        rows = torch.empty(shape, dtype=torch.int64)
        flat = vectors.contiguous()
        own_filter = FilterAddresses(row_filter, num_queries, len(self._table))
        library.scan_int8(
            chosen_isa(),
            torch.get_num_threads(),
            flat.data_ptr(),
            num_queries * num_vectors,
            num_vectors,
            self._int8,
            self._rows.items,
            own_filter.filter,
            shape[2],
            scores.data_ptr(),
            rows.data_ptr(),
        )
        return Nearest(rows, scores)
