"""Dropout in C++: shares, scale, gradient, and draws that depend on the seed alone."""

import math

import pytest
import torch
from torch import Tensor

from railsearch.encoders.sequence.dropout import drop
from railsearch.kernels import KernelName, use_kernel
from railsearch.kernels.native import has_dropout, native_dropout
from tests.support.native import ISAS, bits, forced

pytestmark = pytest.mark.skipif(not has_dropout(), reason="the native kernel of dropout is not compiled")


def dropped(values: Tensor, share: float, seed: int = 3) -> Tensor:
    torch.manual_seed(seed)
    return native_dropout(values, share)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [1, 63, 65, 70_001])
def test_values_stay_scaled_or_become_zero_and_so_do_gradients(isa: str, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    values, upstream = torch.rand(2, size, generator=generator) + 1
    values.requires_grad_()
    with forced(isa):
        found = dropped(values, 0.2)
        (gradient,) = torch.autograd.grad(found, values, upstream)
    is_kept = found != 0
    torch.testing.assert_close(found, torch.where(is_kept, values / 0.8, 0.0), rtol=1e-4, atol=0)
    torch.testing.assert_close(gradient, torch.where(is_kept, upstream / 0.8, 0.0), rtol=1e-4, atol=0)
    assert abs(float(is_kept.float().mean()) - 0.8) <= 5 * math.sqrt(0.16 / size) + (size == 1)


@pytest.mark.parametrize("isa", ISAS)
def test_the_seed_alone_decides(isa: str) -> None:
    values = torch.ones(300, 500)
    with forced(isa, num_threads=1):
        expected = dropped(values, 0.3)
    with forced(isa, num_threads=3):
        assert torch.equal(bits(dropped(values, 0.3)), bits(expected))
        assert not torch.equal(dropped(values, 0.3, seed=4), expected)
    with forced("portable"):
        assert torch.equal(bits(dropped(values, 0.3)), bits(expected))


def test_draws_of_neighbours_are_independent() -> None:
    is_kept = (dropped(torch.ones(1000, 50), 0.5) != 0).double() - 0.5  # (1000, 50)
    correlations = torch.corrcoef(is_kept.T) - torch.eye(50, dtype=torch.float64)  # (50, 50)
    assert float(correlations.abs().max()) < 6 / math.sqrt(1000)


def test_nothing_is_dropped_outside_of_training_and_torch_drops_what_cpp_cannot() -> None:
    values = torch.ones(40, 50)
    assert drop(values, 0.5, is_training=False) is values
    assert drop(values, 0.0, is_training=True) is values
    for given in (values, values.double()):
        assert set(drop(given, 0.5, is_training=True).unique().tolist()) == {0.0, 2.0}
    torch.manual_seed(3)
    with use_kernel(KernelName.TORCH):
        assert not torch.equal(drop(values, 0.5, is_training=True), dropped(values, 0.5))
