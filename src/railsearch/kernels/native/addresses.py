"""Addresses of tensors for the compiled kernels; shapes, strides, dtypes and devices are checked here."""

from collections.abc import Sequence

import torch
from torch import Tensor

from railsearch.kernels.native.library import library
from railsearch.kernels.row_filter import RowFilter
from railsearch.similarity import ItemParts, QueryParts

NUMBERS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""Precisions that tables are read in, as operations.h numbers them."""
MOST_ROWS = 2**32
"""Rows of one table; a row is kept in 32 bits while the best are selected."""


def can_read_queries(*tensors: Tensor | None) -> bool:
    """Return whether these are fp32 tensors on a CPU."""
    return all(each is None or (each.dtype == torch.float32 and each.device.type == "cpu") for each in tensors)


def can_read_items(pieces: Sequence[ItemParts]) -> bool:
    """Return whether all pieces are on a CPU, in one precision that the kernels read."""
    tensors = [each for parts in pieces for each in (parts.components, parts.gate) if each is not None]
    dtypes = {each.dtype for each in tensors}
    is_known = len(dtypes) == 1 and dtypes <= NUMBERS.keys()
    return is_known and all(each.device.type == "cpu" for each in tensors) and sum(map(len, pieces)) < MOST_ROWS


def can_read_table(table: Tensor) -> bool:
    """Return whether a table (N, d) is on a CPU, in a precision that the kernels read."""
    return table.dtype in NUMBERS and table.device.type == "cpu" and len(table) < MOST_ROWS


class ItemAddresses:
    """Items of one or several pieces, read where they lie; keeps their tensors alive.

    A piece whose rows are not contiguous is copied.
    """

    def __init__(self, pieces: Sequence[ItemParts]) -> None:
        self._kept: list[Tensor] = []
        self.items = library.Items(NUMBERS[pieces[0].components.dtype])
        for parts in pieces:
            components, stride = self._rows(parts.components)
            gate, gate_stride = (0, 0) if parts.gate is None else self._rows(parts.gate)
            self.items.add(components, stride, gate, gate_stride, len(parts))

    @classmethod
    def of_table(cls, table: Tensor) -> "ItemAddresses":
        """Read the rows of a table (N, d)."""
        return cls([ItemParts(table, None)])

    def _rows(self, tensor: Tensor) -> tuple[int, int]:
        """Return the address of the first row, and the bytes from one row to the next."""
        if not _has_contiguous_rows(tensor):
            tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr(), tensor.stride(0) * tensor.element_size()


class QueryAddresses:
    """Query parts as contiguous fp32; keeps them alive."""

    def __init__(self, query_parts: QueryParts) -> None:
        self._components = query_parts.components.contiguous()
        self._gate = None if query_parts.gate is None else query_parts.gate.contiguous()
        self.components = self._components.data_ptr()
        self.gate = 0 if self._gate is None else self._gate.data_ptr()
        self.count = len(query_parts)


class FilterAddresses:
    """A row filter for a number of queries and rows; keeps its tensors alive."""

    def __init__(self, row_filter: RowFilter | None, num_queries: int, num_rows: int) -> None:
        if row_filter is None:
            self.filter = library.Filter()
            return
        self._allowed = None if row_filter.is_allowed is None else row_filter.is_allowed.contiguous()
        self._queries, self._rows = row_filter.queries.contiguous(), row_filter.rows.contiguous()
        assert self._allowed is None or (self._allowed.dtype == torch.bool and len(self._allowed) == num_rows)
        assert self._queries.dtype == self._rows.dtype == torch.int64
        assert len(self._queries) == len(self._rows)
        if len(self._queries):
            assert 0 <= int(self._queries.min()) <= int(self._queries.max()) < num_queries
        self.filter = library.Filter(
            0 if self._allowed is None else self._allowed.data_ptr(),
            self._queries.data_ptr(),
            self._rows.data_ptr(),
            len(self._queries),
            num_queries,
        )


def _has_contiguous_rows(tensor: Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape[1:]), reversed(tensor.stride()[1:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
