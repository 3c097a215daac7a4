"""Theorem 1 holds for any real matrix."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from railsearch.errors import InvalidInputError
from railsearch.similarity import Decomposition, decompose

VALUES = st.one_of(st.just(0.0), st.floats(-1e6, 1e6, allow_nan=False))
MATRICES = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=VALUES)


def check_decomposition(matrix: torch.Tensor, found: Decomposition, rank: int, epsilon: float) -> None:
    pi, first, second = found.gate_weights, found.first, found.second
    assert bool(((pi >= 0) & (pi <= 1)).all())
    assert float((matrix.double() - (pi * first + (1 - pi) * second)).abs().max()) <= epsilon
    for part in (first, second):
        scale = float(part.abs().max()) or 1.0
        assert int(torch.linalg.matrix_rank(part / scale, atol=1e-10)) <= rank


@given(matrix=MATRICES, rank=st.integers(1, 5))
def test_any_matrix(matrix: np.ndarray, rank: int) -> None:
    check_decomposition(torch.from_numpy(matrix), decompose(matrix, rank, epsilon=1e-6), rank, 1e-6)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_truncated_product_full_of_zeros(rank: int) -> None:
    matrix = torch.eye(6) * torch.tensor([3.0, -2.0, 5.0, 1.0, -1.0, 0.5])
    check_decomposition(matrix, decompose(matrix, rank, epsilon=1e-9), rank, 1e-9)


@pytest.mark.parametrize(
    "matrix", [torch.zeros(3, 4), torch.full((2, 2), 7.0), torch.outer(torch.arange(4.0), torch.arange(3.0))]
)
def test_low_rank_needs_no_gate(matrix: torch.Tensor) -> None:
    found = decompose(matrix, rank=1)
    check_decomposition(matrix, found, 1, 1e-6)
    assert bool((found.gate_weights == 1).all())


def test_a_constant_needs_no_rounding() -> None:
    assert decompose(torch.full((3, 3), 7.1, dtype=torch.float64), rank=1, epsilon=1e-17).error == 0


@pytest.mark.parametrize(
    ("matrix", "rank", "epsilon", "message"),
    [
        ([[1.0, float("nan")]], 1, 1e-6, "NaN"),
        ([[1.0, float("inf")]], 1, 1e-6, "infinite"),
        ([[1.0]], 0, 1e-6, "rank is 0; ask for rank >= 1"),
        ([[1.0]], 1, 0.0, "epsilon is 0"),
        ([1.0, 2.0], 1, 1e-6, r"shape \(2,\)"),
        (np.empty((0, 3)), 1, 1e-6, r"shape \(0, 3\)"),
        ([["a"]], 1, 1e-6, "numbers"),
        (np.random.default_rng(0).normal(size=(5, 5)), 1, 1e-30, "epsilon is 1e-30 but float64 reaches"),
        (torch.ones(2, 2, dtype=torch.complex64), 1, 1e-6, "real"),
        ([[1.0], [1.0, 2.0]], 1, 1e-6, "rows of equal length"),
        (np.random.default_rng(0).uniform(-1, 1, size=(5, 5)) * 1.7e308, 2, 1e-6, "scale the matrix"),
    ],
)
def test_says_what_it_cannot_do(matrix: object, rank: int, epsilon: float, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        decompose(matrix, rank, epsilon)
