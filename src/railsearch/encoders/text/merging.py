"""Fewer vectors for a text: neighbouring windows are merged, and alike tokens, both by Ward's criterion."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

Groups = list[tuple[int, int]]
"""The first window, and the window after the last, of each component."""
MOST_CLUSTERED = 1024
"""Groups of tokens of which any two may be merged; their costs take 8 MB. Longer texts merge neighbours first."""


def merge_windows(vectors: Tensor, count: int) -> tuple[Tensor, Groups]:
    """Return `count` windows (count, c, D) of the windows (n, c, D) of one text, and the windows that each stands for.

    Fewer windows than asked for are repeated, in turn. More are merged: again and again the two neighbours are joined
    that lose the least by it (Ward's criterion on the means of their c vectors, at length 1). So a group is a stretch
    of the text about one subject, and no window is left out. Its c components are the means of alike vectors of its
    windows, by `cluster_alike`; with c = 1, the mean of all. The choices have no gradient; the means have.

    >>> merge_windows(torch.tensor([[[1.0, 0.0]], [[0.9, 0.1]], [[0.0, 1.0]]]), 2)[1]
    [(0, 2), (2, 3)]
    >>> merge_windows(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), 3)[1]
    [(0, 1), (1, 2), (0, 1)]
    """
    groups = group_neighbours(vectors.detach().mean(dim=1), count)
    if len(groups) == len(vectors):
        rows = torch.arange(count, device=vectors.device) % len(vectors)  # (count,)
        return vectors[rows], [groups[row] for row in rows.tolist()]
    return torch.stack([_merge_alike(vectors[first:last]) for first, last in groups]), groups


def _merge_alike(windows: Tensor) -> Tensor:
    """Return c vectors (c, D) for the vectors (n, c, D) of windows: the means of c clusters of alike vectors."""
    own, count = windows.flatten(0, 1), windows.shape[1]  # (n * c, D)
    if len(windows) == 1 or count == 1:
        return windows.mean(dim=0)
    clusters = torch.tensor(cluster_alike(own, count), device=own.device)  # (n * c,)
    is_member = clusters == torch.arange(count, device=own.device)[:, None]  # (c, n * c)
    return (is_member / is_member.sum(dim=1, keepdim=True)).to(own) @ own


def group_neighbours(vectors: Tensor, count: int) -> Groups:
    """Divide the windows (n, D) of a text into at most `count` groups of consecutive windows."""
    num_windows = len(vectors)
    if num_windows <= count:
        return [(row, row + 1) for row in range(num_windows)]
    sums = F.normalize(vectors, dim=-1).double().cpu().numpy()  # (n, D) of the group that begins with a window
    lasts = list(range(1, num_windows + 1))  # the window after the last one of that group
    befores = list(range(-1, num_windows - 1))  # the first window of the group before it
    costs = np.full(num_windows, np.inf)  # (n,) of joining that group with the next one; inf if it cannot be joined

    def cost_of(first: int) -> float:
        middle = lasts[first]
        if middle == num_windows:
            return np.inf
        one, other = middle - first, lasts[middle] - middle
        difference = sums[first] / one - sums[middle] / other  # (D,)
        return float(one * other / (one + other) * (difference @ difference))

    for first in range(num_windows):
        costs[first] = cost_of(first)
    for _ in range(num_windows - count):
        first = int(costs.argmin())
        middle = lasts[first]
        sums[first] += sums[middle]
        lasts[first], costs[middle] = lasts[middle], np.inf
        if lasts[first] < num_windows:
            befores[lasts[first]] = first
        costs[first] = cost_of(first)
        if befores[first] >= 0:
            costs[befores[first]] = cost_of(befores[first])
    groups, first = [], 0
    while first < num_windows:
        groups.append((first, lasts[first]))
        first = lasts[first]
    return groups


def cluster_alike(vectors: Tensor, count: int) -> list[int]:
    """Return the cluster of each vector (n, D) of a text, at most `count` clusters in the order of their first vectors.

    Hierarchical clustering: each vector begins as a cluster, and again and again the two are merged that lose the least
    by it (Ward's criterion on vectors of length 1), wherever they are in the text. The cost of merging two vectors is 1
    less their cosine. Of more than 1,024 vectors, neighbours are merged first, until 1,024 groups are left, so memory
    is bounded.

    >>> cluster_alike(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]]), 2)
    [0, 1, 0]
    """
    vectors = vectors.detach()
    groups = group_neighbours(vectors, max(count, MOST_CLUSTERED))
    widths = [last - first for first, last in groups]
    sizes = np.array(widths, dtype=np.float64)  # (m,)
    costs = _merging_costs(F.normalize(vectors, dim=-1).double().cpu().numpy(), groups, sizes)  # (m, m)
    nearest = costs.argmin(axis=1)  # (m,) the cheapest partner of each cluster; -1 if it was merged into another
    least = costs.min(axis=1)  # (m,)
    owners = np.arange(len(groups))  # (m,) the first group of the cluster that a group is in
    for _ in range(len(groups) - count):
        kept = int(least.argmin())
        kept, gone = sorted((kept, int(nearest[kept])))
        weighted = (sizes + sizes[kept]) * costs[kept] + (sizes + sizes[gone]) * costs[gone]  # (m,)
        merged = (weighted - sizes * costs[kept, gone]) / (sizes + sizes[kept] + sizes[gone])  # (m,) Lance and Williams
        costs[kept] = costs[:, kept] = merged
        costs[gone] = costs[:, gone] = np.inf
        sizes[kept] += sizes[gone]
        owners[owners == gone] = kept
        nearest[kept], nearest[gone], least[gone] = gone, -1, np.inf
        # Merging never makes a cluster cheaper for a third one, so only partners of the two look for another.
        stale = np.flatnonzero((nearest == kept) | (nearest == gone))
        nearest[stale] = costs[stale].argmin(axis=1)
        least[stale] = costs[stale, nearest[stale]]
    clusters = np.unique(owners, return_inverse=True)[1]  # (m,)
    return [int(cluster) for cluster in np.repeat(clusters, widths)]


def _merging_costs(vectors: NDArray[np.float64], groups: Groups, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cost (m, m) of merging any two groups of vectors (n, D); infinite for a group and itself."""
    means = np.add.reduceat(vectors, [first for first, _ in groups]) / sizes[:, None]  # (m, D)
    lengths = np.square(means).sum(axis=1)  # (m,) squared
    distances = (lengths[:, None] + lengths - 2 * means @ means.T).clip(min=0)  # (m, m) squared
    costs: NDArray[np.float64] = distances * np.outer(sizes, sizes) / np.add.outer(sizes, sizes)  # (m, m)
    np.fill_diagonal(costs, np.inf)
    return costs
