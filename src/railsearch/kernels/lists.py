"""Lists of rows and scores, one for each query: united, and the best of each; in C++ where that can run."""

import torch
from torch import Tensor

from railsearch.kernels import native, selection
from railsearch.kernels.choose import uses_native
from railsearch.kernels.contract import NO_ROW
from railsearch.kernels.stages import Stage, timed


@timed(Stage.SELECTION)
def select_best(scores: Tensor, k: int, ties: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the k best scores of each row and their columns, best first; of equal scores the smaller column.

    With `ties` (B, n), the smaller value there decides between equal scores. Scores are not NaN, and ties are rows or
    places.

    >>> scores, columns = select_best(torch.tensor([[1.0, 3.0, 3.0, 3.0]]), k=2)
    >>> columns.tolist()
    [[1, 2]]
    """
    if uses_native(scores.device) and native.can_select(scores, ties):
        return native.select_best(scores, k, ties)
    return selection.select_best(scores, k, ties)


@timed(Stage.FIRST_STAGE)
def unite(lists: list[Tensor], num_rows: int) -> tuple[Tensor, Tensor]:
    """Return the rows (B, C) that are in any of the lists (B, n), ascending, each once, and which of them are real.

    >>> rows, is_real = unite([torch.tensor([[4, 2], [1, -1]]), torch.tensor([[2], [1]])], num_rows=5)
    >>> rows.tolist(), is_real.tolist()
    ([[2, 4], [1, 0]], [[True, True], [True, False]])
    """
    rows = lists[0] if len(lists) == 1 else torch.cat(lists, dim=1)  # (B, n)
    if uses_native(rows.device):
        return native.unite(rows)
    ordered = torch.where(rows == NO_ROW, num_rows, rows).sort(dim=1).values  # (B, n)
    is_new = ordered < num_rows  # (B, n)
    is_new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    columns, is_real = selection.pack(is_new)  # (B, C)
    return ordered.gather(1, columns).masked_fill(~is_real, 0), is_real
