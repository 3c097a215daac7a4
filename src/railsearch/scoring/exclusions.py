"""Which rows each query must not be given."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Exclusions:
    """Pairs of a query and a row that are left out, in ascending order of rows."""

    queries: Tensor  # (E,) int64
    rows: Tensor  # (E,) int64

    @classmethod
    def from_lists(cls, lists: Sequence[Tensor], *, device: torch.device) -> "Exclusions":
        """Gather one list of distinct rows a query."""
        lengths = torch.tensor([len(rows) for rows in lists], dtype=torch.int64)
        queries = torch.repeat_interleave(torch.arange(len(lists)), lengths)  # (E,)
        rows, order = torch.cat([torch.empty(0, dtype=torch.int64), *lists]).sort(stable=True)  # (E,)
        return cls(queries[order].to(device), rows.to(device))

    def of_queries(self, first: int, last: int) -> "Exclusions":
        """Keep the pairs of the queries first to last - 1, counted anew from 0."""
        is_kept = (self.queries >= first) & (self.queries < last)
        return Exclusions(self.queries[is_kept] - first, self.rows[is_kept])

    def hide(self, scores: Tensor, first_row: int) -> None:
        """Put minus infinity where a query's score (B, n) belongs to a row that it must not be given."""
        bounds = torch.tensor([first_row, first_row + scores.shape[1]], device=self.rows.device)
        first, last = torch.searchsorted(self.rows, bounds).tolist()
        scores[self.queries[first:last], self.rows[first:last] - first_row] = -torch.inf
