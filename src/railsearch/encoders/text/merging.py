"""From the windows of a text to a fixed number of components: few windows are repeated, many are merged."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

Groups = list[tuple[int, int]]
"""The first window, and the window after the last, of each component."""


def merge_windows(vectors: Tensor, count: int) -> tuple[Tensor, Groups]:
    """Return `count` components (count, D) of the window vectors (n, D) of one text, and the windows of each.

    Fewer windows than components are repeated, in turn. More are merged: again and again the two neighbours are joined
    that lose the least by it (Ward's criterion on vectors of length 1). So a component is the mean of consecutive
    windows, a stretch of the text about one subject, and no window is left out. The choice has no gradient; the means
    have.

    >>> merge_windows(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 2)[1]
    [(0, 2), (2, 3)]
    >>> merge_windows(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 3)[1]
    [(0, 1), (1, 2), (0, 1)]
    """
    groups = group_neighbours(vectors.detach(), count)
    if len(groups) == len(vectors):
        rows = torch.arange(count, device=vectors.device) % len(vectors)  # (count,)
        return vectors[rows], [groups[row] for row in rows.tolist()]
    return torch.stack([vectors[first:last].mean(dim=0) for first, last in groups]), groups


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
