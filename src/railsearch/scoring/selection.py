"""The k best of many scores, in one order that never depends on chance: by score, then smaller column."""

import torch
from torch import Tensor


def select_best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Give the k best scores of each row and their columns, best first; of equal scores the smaller column.

    >>> scores, columns = select_best(torch.tensor([[1.0, 3.0, 3.0, 3.0]]), k=2)
    >>> columns.tolist()
    [[1, 2]]
    """
    values, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)  # (B, <= K + 1)
    if values.shape[1] > k:
        # topk picks any of the columns that tie for the last place; only then is the slower sort needed.
        is_crowded = values[:, k - 1] == values[:, k]  # (B,)
        columns = columns[:, :k]
        if bool(is_crowded.any()):
            columns[is_crowded] = scores[is_crowded].sort(dim=1, descending=True, stable=True).indices[:, :k]
    columns = columns.sort(dim=1).values  # (B, K)
    ordered = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)  # (B, K)
    return ordered.values, columns.gather(1, ordered.indices)


class RunningBest:
    """The k best of scores that come chunk by chunk, in ascending order of rows."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._scores: Tensor | None = None
        self._rows: Tensor | None = None

    def update(self, scores: Tensor, first_row: int) -> None:
        """Take the scores (B, n) of the rows that begin at `first_row`."""
        best, columns = select_best(scores, min(self.k, scores.shape[1]))
        rows = columns + first_row  # (B, <= K)
        if self._scores is not None and self._rows is not None:
            # Rows seen before are smaller and stand first, so that they win ties.
            merged = torch.cat([self._scores, best], dim=1)  # (B, <= 2 K)
            best, columns = select_best(merged, min(self.k, merged.shape[1]))
            rows = torch.cat([self._rows, rows], dim=1).gather(1, columns)  # (B, <= K)
        self._scores, self._rows = best, rows

    def result(self) -> tuple[Tensor, Tensor]:
        """Scores and rows, best first."""
        assert self._scores is not None
        assert self._rows is not None
        return self._scores, self._rows
