"""exp and SiLU of the native kernels: their error, and the same bits with every instruction set."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from railsearch.kernels.native import library
from tests.support.native import ISAS, needs_native

pytestmark = needs_native

EVERYWHERE = np.concatenate(
    [
        np.linspace(-87, 88, 300_001),
        np.linspace(-1, 1, 100_001),
        np.geomspace(1e-45, 88, 50_001),
        -np.geomspace(1e-45, 87, 50_001),
        [0.0, -0.0],
    ]
).astype(np.float32)


def compute(name: str, isa: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    given, results = torch.from_numpy(values.copy()), torch.empty(len(values))
    getattr(library.library, name)(isa, given.data_ptr(), len(values), results.data_ptr())
    return results.numpy()


def error_in_ulp(found: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    return float((np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32))).max())


def test_exponential_is_within_one_ulp() -> None:
    found = compute("exponential", ISAS[0], EVERYWHERE)
    assert error_in_ulp(found, np.exp(EVERYWHERE.astype(np.float64))) <= 1.0


def test_silu_is_within_two_ulp() -> None:
    values = EVERYWHERE[np.abs(EVERYWHERE) > 1e-30]
    wide = values.astype(np.float64)
    assert error_in_ulp(compute("silu", ISAS[0], values), wide / (1 + np.exp(-wide))) <= 2.0


@pytest.mark.parametrize("name", ["exponential", "silu"])
@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_returns_the_same_bits(name: str, isa: str) -> None:
    extremes = np.array([-np.inf, np.inf, -1e30, 1e30, -100, 100, 3.4e38, 1e-45], dtype=np.float32)
    values = np.concatenate([EVERYWHERE, extremes])
    found, right = compute(name, isa, values), compute(name, "portable", values)
    assert np.array_equal(np.isnan(found), np.isnan(right))  # a NaN may have any bits
    is_number = ~np.isnan(right)
    assert np.array_equal(found[is_number].view(np.int32), right[is_number].view(np.int32))


def test_nan_stays_nan_and_a_large_argument_stays_finite() -> None:
    values = np.array([np.nan, 1e30, -1e30], dtype=np.float32)
    found = compute("exponential", ISAS[0], values)
    assert np.isnan(found[0])
    assert np.isfinite(found[1:]).all()
