"""Theorem 1 as code: any matrix of scores is a mixture of two matrices of low rank."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_tensor, check_count, check_finite, check_positive


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """A matrix as gate_weights * first + (1 - gate_weights) * second, elementwise."""

    gate_weights: Tensor  # (n, m) float64, each within 0..1
    first: Tensor  # (n, m) float64, rank <= d
    second: Tensor  # (n, m) float64, rank <= d
    error: float
    """The largest absolute difference from the matrix that was decomposed."""

    def mixture(self) -> Tensor:
        """Return the matrix that the two parts form together."""
        return self.gate_weights * self.first + (1 - self.gate_weights) * self.second  # (n, m)


def decompose(matrix: ArrayLike, rank: int, epsilon: float = 1e-6) -> Decomposition:
    """Write a matrix as a mixture of two matrices of rank <= `rank`, to within `epsilon` everywhere.

    The paper scales the best approximation M of that rank, entry by entry: A = lambda * M, with
    B1 = min(lambda) * M and B2 = max(lambda) * M mixed to yield each lambda. That fails if M has zeros, because
    no factor changes them. Here one of the ranks is used for a constant that lifts every entry of M well above
    zero: M = (best approximation of rank d - 1) + c. So lambda always exists and is small, and rounding is as
    small as the entries themselves.

    The decomposition shows what a mixture can express. It does not compress a matrix: the gate weights are as
    large as the matrix itself.

    >>> identity = torch.eye(6)                 # rank 6: the truncated products are full of zeros
    >>> mixture = decompose(identity, rank=1)
    >>> mixture.error < 1e-6, torch.linalg.matrix_rank(mixture.second).item()
    (True, 1)

    Raises:
        InvalidInputError: the matrix is not two-dimensional, is empty or holds NaN or infinite values; rank
            is below 1; epsilon is not positive, or below what float64 can tell apart at this size of entries.
    """
    values = as_tensor(matrix, "matrix")
    if values.ndim != 2 or values.numel() == 0:
        raise InvalidInputError(f"matrix has shape {tuple(values.shape)}; give rows and columns: (n, m).")
    check_count(rank, name="rank")
    check_positive(epsilon, name="epsilon")
    values = values.to(torch.float64)
    check_finite(values, name="matrix")

    scale = float(values.abs().max()) or 1.0
    unit = values / scale  # (n, m) entries within -1..1
    whole = _truncate(unit, rank)  # (n, m)
    if float((whole - unit).abs().max()) * scale <= epsilon:
        # Lemma 1: the rank is enough, and both matrices are the same.
        return _checked(values, torch.ones_like(unit), whole * scale, whole * scale, epsilon)

    lifted = _truncate(unit, rank - 1)  # (n, m)
    lifted = lifted + (1.0 + 2.0 * float(lifted.abs().max()))  # (n, m) every entry >= 1
    factors = unit / lifted  # (n, m) lambda
    least, most = factors.min(), factors.max()
    spread = torch.where(most > least, most - least, 1.0)  # ()
    gate_weights = ((most - factors) / spread).clamp(0.0, 1.0)  # (n, m)
    return _checked(values, gate_weights, least * lifted * scale, most * lifted * scale, epsilon)


def _truncate(matrix: Tensor, rank: int) -> Tensor:
    """Return the best approximation of that rank."""
    left, singular_values, right = torch.linalg.svd(matrix, full_matrices=False)
    product: Tensor = (left[:, :rank] * singular_values[:rank]) @ right[:rank]  # (n, m)
    return product


def _checked(values: Tensor, gate_weights: Tensor, first: Tensor, second: Tensor, epsilon: float) -> Decomposition:
    found = Decomposition(gate_weights, first, second, error=0.0)
    error = float((values - found.mixture()).abs().max())
    if not math.isfinite(error):
        raise InvalidInputError(
            f"matrix has entries as large as {float(values.abs().max()):g}, too near the limit of float64 for "
            f"epsilon {epsilon:g}; scale the matrix or ask for a larger epsilon."
        )
    if error > epsilon:
        raise InvalidInputError(
            f"epsilon is {epsilon:g} but float64 reaches {error:g} for entries as large as "
            f"{float(values.abs().max()):g}; ask for epsilon >= {2 * error:g} or scale the matrix."
        )
    return Decomposition(gate_weights, first, second, error)
