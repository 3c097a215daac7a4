"""The nearest items of each item by the cosine of their users, in sparse arithmetic and blocks of bounded memory."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.models.sequential import consecutive_rows

PAIRS_PER_BLOCK = 2**21
"""Co-occurring pairs of items that are in memory at once; those of one item always fit."""
STEPS = 2**24
"""Similarities are multiples of 1 / STEPS. They fit into fp32, and their sums in fp64 are exact in any order, so that
ties are the same in every batch and on every machine."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The nearest items of each item: M entries in the order of items, the nearest first."""

    offsets: Tensor  # (N + 1,) first entry of each item
    rows: Tensor  # (M,) int32
    similarities: Tensor  # (M,) fp32, above 0

    def of(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries (m,) of items (n,), one item after the other, and their number (n,) for each item."""
        counts = self.offsets[items + 1] - self.offsets[items]  # (n,)
        return consecutive_rows(self.offsets[items], counts), counts


def find_neighbors(
    users: Tensor, items: Tensor, *, num_users: int, num_items: int, num_neighbors: int, shrinkage: float
) -> Neighbors:
    """Find the items that share most users with each item, by cosine; ties go to the smaller row.

    Args:
        users: (E,) user of each event.
        items: (E,) item of each event; an item counts once for each user.
        num_users: number of users.
        num_items: number of items.
        num_neighbors: the most neighbours of each item. Items that share no user are no neighbours.
        shrinkage: added to the denominator of the cosine, against items with few users.
    """
    met = torch.unique(items * num_users + users)  # (E,) by item, then user
    items, users = met // num_users, met % num_users  # (E,)
    by_item = _sparse(items, users, (num_items, num_users))
    by_user = by_item.t().coalesce()  # (U, N)
    num_users_of = torch.bincount(items, minlength=num_items)  # (N,)
    num_met = torch.zeros_like(num_users_of)  # (N,) pairs that an item is part of, with repetitions
    num_met.index_add_(0, items, torch.bincount(users, minlength=num_users)[users])
    found = []
    for first, last in _blocks(num_met.clamp(max=num_items)):
        own = (items >= first) & (items < last)  # (E,)
        block = _sparse(items[own] - first, users[own], (last - first, num_users))  # (n, U)
        counts = _multiply(block, by_user)  # (n, N)
        rows, columns = counts.indices()  # (m,) by row, then column
        product = (num_users_of[rows + first] * num_users_of[columns]).double()  # (m,)
        steps = (counts.values() / (product.sqrt() + shrinkage) * STEPS).round().long()  # (m,)
        is_other = (rows + first != columns) & (steps > 0)  # (m,)
        found.append(_nearest(rows[is_other] + first, columns[is_other], steps[is_other], num_neighbors, num_items))
    rows, columns, steps = (torch.cat(parts) for parts in zip(*found, strict=True))  # (M,)
    kept = torch.bincount(rows, minlength=num_items)  # (N,)
    offsets = torch.cat([kept.new_zeros(1), kept.cumsum(dim=0)])  # (N + 1,)
    return Neighbors(offsets, columns.int(), (steps.double() / STEPS).float())


def _nearest(
    rows: Tensor, columns: Tensor, steps: Tensor, num_neighbors: int, num_items: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Keep the first neighbours of each row, in descending order of similarity and then by column."""
    order = (rows * (STEPS + 1) + (STEPS - steps)).argsort(stable=True)  # (m,)
    rows, columns, steps = rows[order], columns[order], steps[order]
    counts = torch.bincount(rows, minlength=num_items)  # (N,)
    places = torch.arange(len(rows)) - (counts.cumsum(dim=0) - counts)[rows]  # (m,)
    is_near = places < num_neighbors  # (m,)
    return rows[is_near], columns[is_near], steps[is_near]


def _blocks(costs: Tensor) -> list[tuple[int, int]]:
    """Return bounds of blocks of items whose costs sum to at most PAIRS_PER_BLOCK; a block has at least one item."""
    ends = costs.cumsum(dim=0)  # (N,)
    blocks, first = [], 0
    while first < len(costs):
        before = int(ends[first - 1]) if first else 0
        last = int(torch.searchsorted(ends, before + PAIRS_PER_BLOCK, right=True))
        last = max(last, first + 1)
        blocks.append((first, last))
        first = last
    return blocks


def _sparse(rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse matrix of ones; the places are different."""
    ones = torch.ones(len(rows), dtype=torch.float64)
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), ones, shape, check_invariants=False).coalesce()


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two sparse matrices, which is sparse."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        product: Tensor = torch.sparse.mm(left, right)
    return product.coalesce()
