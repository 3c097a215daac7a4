"""Lists of rows and scores in C++: united, and the best of each."""

import torch
from torch import Tensor

from railsearch.kernels.native.library import chosen_isa, library

MOST_COLUMNS = 2**32
"""A column or tie value is kept in 32 bits while the best are selected."""


def can_select(scores: Tensor, ties: Tensor | None) -> bool:
    """Return whether the scores (B, n) and ties (B, n) can be read here."""
    is_known = scores.dtype == torch.float32 and scores.device.type == "cpu" and scores.shape[1] < MOST_COLUMNS
    return is_known and scores.numel() > 0 and (ties is None or ties.dtype == torch.int64)


def select_best(scores: Tensor, k: int, ties: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the k best scores of each row and their columns; see `railsearch.kernels.select_best`.

    The values of ties are at least 0 and below 2^32.
    """
    num_lists, width = scores.shape
    scores, ties = scores.contiguous(), None if ties is None else ties.contiguous()
    assert 0 <= k <= width
    assert ties is None or ties.shape == scores.shape
    best = torch.empty(num_lists, k)  # (B, K)
    columns = torch.empty(num_lists, k, dtype=torch.int64)  # (B, K)
    library.select_best(
        chosen_isa(),
        torch.get_num_threads(),
        scores.data_ptr(),
        0 if ties is None else ties.data_ptr(),
        num_lists,
        width,
        k,
        best.data_ptr(),
        columns.data_ptr(),
    )
    return best, columns


def unite(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows (B, C) of each list (B, n), ascending, each once, and which of them are real.

    A negative row stands for none.
    """
    num_lists, width = rows.shape
    rows = rows.contiguous()
    assert rows.dtype == torch.int64
    united, is_real = torch.empty_like(rows), torch.empty(rows.shape, dtype=torch.bool)  # (B, n)
    counts = torch.empty(num_lists, dtype=torch.int64)  # (B,)
    library.unite(
        chosen_isa(),
        torch.get_num_threads(),
        rows.data_ptr(),
        num_lists,
        width,
        united.data_ptr(),
        is_real.data_ptr(),
        counts.data_ptr(),
    )
    longest = int(counts.max()) if num_lists else 0
    return (united, is_real) if longest == width else (united[:, :longest], is_real[:, :longest])
