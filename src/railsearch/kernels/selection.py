"""Selection of the k best scores, always in the same order: by score, then by smaller column."""

import torch
from torch import Tensor

from railsearch.kernels.stages import Stage, timed


@timed(Stage.SELECTION)
def select_best(scores: Tensor, k: int, ties: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the k best scores of each row and their columns, best first; of equal scores the smaller column.

    With `ties` (B, n), the smaller value there decides between equal scores.

    >>> scores, columns = select_best(torch.tensor([[1.0, 3.0, 3.0, 3.0]]), k=2)
    >>> columns.tolist()
    [[1, 2]]
    """
    if ties is not None:
        order = ties.argsort(dim=1, stable=True)  # (B, n)
        best, places = select_best(scores.gather(1, order), k)  # (B, K)
        return best, order.gather(1, places)
    values, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)  # (B, <= K + 1)
    if values.shape[1] > k:
        # If columns tie for the last place, topk returns any of them. Only then is the slower sort needed.
        is_crowded = values[:, k - 1] == values[:, k]  # (B,)
        columns = columns[:, :k]
        if bool(is_crowded.any()):
            columns[is_crowded] = scores[is_crowded].sort(dim=1, descending=True, stable=True).indices[:, :k]
    columns = columns.sort(dim=1).values  # (B, K)
    ordered = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)  # (B, K)
    return ordered.values, columns.gather(1, ordered.indices)


def pack(is_kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns that are kept of each row (B, n), ascending and moved to the left: (B, longest row).

    Shorter rows are filled with column 0; the second tensor is false there.

    >>> columns, is_real = pack(torch.tensor([[False, True, True], [False, False, True]]))
    >>> columns.tolist(), is_real.tolist()
    ([[1, 2], [2, 0]], [[True, True], [True, False]])
    """
    rows, columns = is_kept.nonzero(as_tuple=True)  # (M,) by row, then column
    counts = torch.bincount(rows, minlength=len(is_kept))  # (B,)
    places = torch.arange(len(rows), device=rows.device) - (counts.cumsum(dim=0) - counts)[rows]  # (M,)
    width = int(counts.max()) if len(counts) else 0
    packed = columns.new_zeros((len(is_kept), width))  # (B, width)
    packed[rows, places] = columns
    return packed, torch.arange(width, device=rows.device) < counts[:, None]


class RunningBest:
    """The k best of scores that arrive chunk by chunk, in ascending order of rows."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._scores: Tensor | None = None
        self._rows: Tensor | None = None

    @timed(Stage.SELECTION)
    def update(self, scores: Tensor, rows: Tensor) -> None:
        """Add scores (B, n) of ascending rows, (n,) or (B, n), all greater than the rows of earlier chunks."""
        if self._scores is not None and self._rows is not None:
            if self._scores.shape[1] == self.k:
                # A later row must be strictly better than the k-th: most of a chunk is skipped here.
                columns, is_real = pack(scores > self._scores[:, -1:])  # (B, few)
                rows = rows.expand_as(scores).gather(1, columns)  # (B, few)
                scores = scores.gather(1, columns).masked_fill(~is_real, -torch.inf)  # (B, few)
            # Earlier rows are smaller and come first, so that they win ties.
            rows = torch.cat([self._rows, rows.expand_as(scores)], dim=1)  # (B, K + few)
            scores = torch.cat([self._scores, scores], dim=1)  # (B, K + few)
        best, columns = select_best(scores, min(self.k, scores.shape[1]))  # (B, <= K)
        self._scores, self._rows = best, rows.expand_as(scores).gather(1, columns)  # (B, <= K)

    def result(self) -> tuple[Tensor, Tensor]:
        """Return scores and rows, best first; fewer than k only if fewer were added."""
        assert self._scores is not None
        assert self._rows is not None
        return self._scores, self._rows
