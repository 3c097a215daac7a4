"""An exact scan of one table by dot product in C++, fused with the selection of the best rows."""

import torch
from torch import Tensor

from railsearch.kernels import torch_scan
from railsearch.kernels.contract import Nearest
from railsearch.kernels.native.addresses import FilterAddresses, ItemAddresses, can_read_queries, can_read_table
from railsearch.kernels.native.library import chosen_isa, library
from railsearch.kernels.row_filter import RowFilter


def scan(
    vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
) -> Nearest:
    """Return the n best rows of the table (N, d) for each of the vectors (B, V, d); see `railsearch.kernels.Scan`.

    Vectors that are not fp32 are scanned with torch.
    """
    if not can_read_queries(vectors, bounds) or not can_read_table(table) or not vectors.numel() or not len(table):
        return torch_scan.scan(vectors, table, n, row_filter, bounds=bounds)
    num_queries, num_vectors, dim = vectors.shape
    assert table.shape[1] == dim
    shape = (num_queries, num_vectors, min(n, len(table)))
    scores = torch.empty(shape, dtype=torch.float32)
    rows = torch.empty(shape, dtype=torch.int64)
    flat = vectors.contiguous()
    raised = None
    if bounds is not None:
        assert bounds.shape == (num_queries, len(table))
        raised = bounds if bounds.stride(1) == 1 else bounds.contiguous()  # (B, N)
    items = ItemAddresses.of_table(table)
    own_filter = FilterAddresses(row_filter, num_queries, len(table))
    library.scan(
        chosen_isa(),
        torch.get_num_threads(),
        flat.data_ptr(),
        num_queries * num_vectors,
        num_vectors,
        dim,
        items.items,
        own_filter.filter,
        shape[2],
        scores.data_ptr(),
        rows.data_ptr(),
        0 if raised is None else raised.data_ptr(),
        0 if raised is None else raised.stride(0),
    )
    if bounds is not None and raised is not None and raised is not bounds:
        bounds.copy_(raised)
    return Nearest(rows, scores)
