"""The filter of a search: rows that must not be returned, to one query (items already seen) or to any query."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """Rows that are hidden from single queries, in ascending order of queries, and rows that all queries may see."""

    queries: Tensor  # (E,) int64
    rows: Tensor  # (E,) int64
    is_allowed: Tensor | None = None  # (N,) bool

    @classmethod
    def from_lists(
        cls, lists: Sequence[Tensor], *, device: torch.device, is_allowed: Tensor | None = None
    ) -> "RowFilter":
        """Build a filter that hides one list of rows from each query."""
        lengths = torch.tensor([len(rows) for rows in lists], dtype=torch.int64)
        queries = torch.repeat_interleave(torch.arange(len(lists)), lengths)  # (E,)
        rows = torch.cat([torch.empty(0, dtype=torch.int64), *lists])  # (E,)
        return cls(queries.to(device), rows.to(device), None if is_allowed is None else is_allowed.to(device))

    @classmethod
    def nothing(cls, *, device: torch.device) -> "RowFilter":
        """Return an empty filter."""
        return cls.from_lists([], device=device)

    def of_queries(self, first: int, last: int) -> "RowFilter":
        """Return the filter of the queries first to last - 1, renumbered from 0."""
        bounds = torch.tensor([first, last], device=self.queries.device)
        left, right = torch.searchsorted(self.queries, bounds).tolist()
        return RowFilter(self.queries[left:right] - first, self.rows[left:right], self.is_allowed)

    def of_some(self, queries: Tensor) -> "RowFilter":
        """Return the filter of some ascending queries (A,), renumbered from 0.

        >>> row_filter = RowFilter.from_lists([torch.tensor([5]), torch.tensor([6]), torch.tensor([7])], device=CPU)
        >>> own = row_filter.of_some(torch.tensor([0, 2]))
        >>> own.queries.tolist(), own.rows.tolist()
        ([0, 1], [5, 7])
        """
        if not len(queries):
            return RowFilter(self.queries[:0], self.rows[:0], self.is_allowed)
        places = torch.searchsorted(queries, self.queries).clamp_max(len(queries) - 1)  # (E,)
        is_there = queries[places] == self.queries  # (E,)
        return RowFilter(places[is_there], self.rows[is_there], self.is_allowed)

    def of_rows(self, first: int, last: int) -> "RowFilter":
        """Return the filter of the rows first to last - 1, renumbered from 0."""
        is_near = (self.rows >= first) & (self.rows < last)  # (E,)
        is_allowed = None if self.is_allowed is None else self.is_allowed[first:last]
        return RowFilter(self.queries[is_near], self.rows[is_near] - first, is_allowed)

    def num_visible(self, num_queries: int, num_rows: int) -> Tensor:
        """Return how many of the rows each query (B,) may see.

        >>> row_filter = RowFilter.from_lists([torch.tensor([2, 2]), torch.tensor([0])], device=CPU)
        >>> row_filter.num_visible(2, 5).tolist()
        [4, 4]
        """
        is_counted = slice(None) if self.is_allowed is None else self.is_allowed[self.rows]  # (E,)
        hidden = torch.unique(self.queries[is_counted] * num_rows + self.rows[is_counted])  # each pair once
        num_allowed = num_rows if self.is_allowed is None else int(self.is_allowed.sum())
        return num_allowed - torch.bincount(hidden // num_rows, minlength=num_queries)  # (B,)

    def plus(self, rows: Tensor) -> "RowFilter":
        """Return a filter that also hides these rows (B, n) from their queries; -1 stands for no row."""
        queries = torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)  # (B, n)
        is_row = rows >= 0  # (B, n)
        both, order = torch.cat([self.queries, queries[is_row]]).sort(stable=True)  # (E,)
        return RowFilter(both, torch.cat([self.rows, rows[is_row]])[order], self.is_allowed)

    def hide_among(self, scores: Tensor, rows: Tensor) -> None:
        """Write minus infinity to the scores (B, n) of those ascending rows (n,) that are hidden from a query."""
        places = torch.searchsorted(rows, self.rows).clamp_max(len(rows) - 1)  # (E,)
        is_there = rows[places] == self.rows if len(rows) else torch.zeros_like(self.rows, dtype=torch.bool)  # (E,)
        scores[self.queries[is_there], places[is_there]] = -torch.inf

    def hide(self, scores: Tensor, first_row: int) -> None:
        """Write minus infinity to the scores (B, n) or (B, Pq, n) of hidden rows; the first is `first_row`."""
        last_row = first_row + scores.shape[-1]
        if self.is_allowed is not None:
            scores.masked_fill_(~self.is_allowed[first_row:last_row], -torch.inf)
        is_near = (self.rows >= first_row) & (self.rows < last_row)  # (E,)
        by_row = scores.movedim(-1, 1)  # (B, n) or (B, n, Pq)
        by_row[self.queries[is_near], self.rows[is_near] - first_row] = -torch.inf
