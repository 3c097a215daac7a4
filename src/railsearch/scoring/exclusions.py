"""Which rows each query must not be given."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Exclusions:
    """Pairs of a query and a row that are left out, in ascending order of queries."""

    queries: Tensor  # (E,) int64
    rows: Tensor  # (E,) int64

    @classmethod
    def from_lists(cls, lists: Sequence[Tensor], *, device: torch.device) -> "Exclusions":
        """Gather one list of rows a query."""
        lengths = torch.tensor([len(rows) for rows in lists], dtype=torch.int64)
        queries = torch.repeat_interleave(torch.arange(len(lists)), lengths)  # (E,)
        rows = torch.cat([torch.empty(0, dtype=torch.int64), *lists])  # (E,)
        return cls(queries.to(device), rows.to(device))

    def of_queries(self, first: int, last: int) -> "Exclusions":
        """Keep the pairs of the queries first to last - 1, counted anew from 0."""
        bounds = torch.tensor([first, last], device=self.queries.device)
        left, right = torch.searchsorted(self.queries, bounds).tolist()
        return Exclusions(self.queries[left:right] - first, self.rows[left:right])

    def hide(self, scores: Tensor, first_row: int) -> None:
        """Put minus infinity where a query's score (B, n) belongs to a row that it must not be given."""
        is_near = (self.rows >= first_row) & (self.rows < first_row + scores.shape[1])  # (E,)
        scores[self.queries[is_near], self.rows[is_near] - first_row] = -torch.inf
