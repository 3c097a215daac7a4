"""The load-balance loss: a batch uses all component pairs, but each query-item pair only a few (equation 3)."""

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError


def load_balance_loss(gate_weights: Tensor) -> Tensor:
    """Return L_MI = -H(p) + H(p | q, x), the negative mutual information of component pair and (query, item).

    H(p) is the entropy of the mean weights over all given rows, H(p | q, x) the mean entropy of each row. The loss
    is 0 if the gate ignores its input and -log P at best.

    >>> load_balance_loss(torch.eye(4)).item() + torch.log(torch.tensor(4.0)).item()
    0.0

    Args:
        gate_weights: (..., P), of the positive query-item pairs of a batch; each row sums to 1.
    """
    if gate_weights.ndim < 2 or gate_weights.numel() == 0:
        raise InvalidInputError(
            f"gate_weights has shape {tuple(gate_weights.shape)}; give at least one row of weights: (rows, P)."
        )
    rows = gate_weights.flatten(0, -2)  # (rows, P)
    return _entropy(rows).mean() - _entropy(rows.mean(dim=0))  # ()


def _entropy(weights: Tensor) -> Tensor:
    """Return the entropy over the last dimension, with 0 log 0 = 0 and a finite gradient there."""
    smallest = torch.finfo(weights.dtype).tiny
    return -(weights * weights.clamp_min(smallest).log()).sum(dim=-1)
