"""The sampled softmax over shared negatives in C++: loss and gradients as autograd has them in fp64."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import DotProduct
from railsearch.kernels import KernelName, use_kernel
from railsearch.kernels.native import SharedSoftmax, can_share_softmax, shared_softmax
from railsearch.training.losses import backward_sampled_softmax
from railsearch.training.negatives import Contrast
from tests.support.native import ISAS, bits, forced
from tests.support.trials import trials

pytestmark = pytest.mark.skipif(not can_share_softmax(), reason="the native kernels of training are not compiled")

WEIGHT = 0.3


def draw(num_queries: int, num_items: int, dim: int, *, scale: float = 3.0, seed: int = 0) -> list[Tensor]:
    """Return queries, items, scores of right items, their columns, exclusions and offsets."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(num_queries, dim, generator=generator) * scale / dim**0.5,
        torch.randn(num_items, dim, generator=generator),
        torch.randn(num_queries, generator=generator),
        torch.randint(-1, num_items, (num_queries,), generator=generator),
        torch.rand(num_queries, num_items, generator=generator) < 0.1,
        torch.randn(num_items, generator=generator),
    ]


def native_results(inputs: list[Tensor], parts: tuple[bool, bool, bool]) -> list[Tensor]:
    queries, items, rights, *options = inputs
    own, excluded, offsets = (each if is_used else None for each, is_used in zip(options, parts, strict=True))
    found = shared_softmax(queries, items, rights, weight=WEIGHT, own=own, excluded=excluded, offsets=offsets)
    return results(found)


def results(found: SharedSoftmax) -> list[Tensor]:
    return [torch.tensor(found.loss, dtype=torch.float64), found.to_queries, found.to_items, found.to_rights]


def fp64_results(inputs: list[Tensor], parts: tuple[bool, bool, bool]) -> list[Tensor]:
    queries, items, rights = (each.double().requires_grad_() for each in inputs[:3])
    own, excluded, offsets = inputs[3:]
    scores = queries @ items.T
    if parts[2]:
        scores = scores + offsets.double()
    if parts[0]:
        scores = scores.masked_fill(torch.arange(len(items)) == own[:, None], -torch.inf)
    if parts[1]:
        scores = scores.masked_fill(excluded, -torch.inf)
    logits = torch.cat([rights[:, None], scores], dim=1)
    loss = WEIGHT * F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64), reduction="sum")
    return [loss.detach(), *torch.autograd.grad(loss, [queries, items, rights])]


@settings(deadline=None, max_examples=trials(15, 60))
@given(
    num_queries=st.integers(1, 70),
    num_items=st.integers(1, 450),
    dim=st.sampled_from([1, 2, 3, 7, 16, 50, 64, 300]),
    scale=st.sampled_from([0.1, 3.0, 30.0]),
    parts=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**16),
)
def test_loss_and_gradients_are_those_of_autograd_in_fp64(
    num_queries: int, num_items: int, dim: int, scale: float, parts: tuple[bool, bool, bool], isa: str, seed: int
) -> None:
    inputs = draw(num_queries, num_items, dim, scale=scale, seed=seed)
    with forced(isa):
        found = native_results(inputs, parts)
    for one, exact in zip(found, fp64_results(inputs, parts), strict=True):
        assert one.shape == exact.shape
        # Scores of size 100 are off by 1e-5 in fp32, and so are the weights of the softmax, relatively.
        assert float((one.double() - exact).abs().max()) <= 1e-4 * max(float(exact.abs().max()), 1.0)


@pytest.mark.parametrize("isa", ISAS)
def test_same_bits_on_any_number_of_threads(isa: str) -> None:
    inputs = draw(333, 130, 11)
    found = []
    for num_threads in (1, 2, 3):
        with forced(isa, num_threads):
            found.append(native_results(inputs, (True, True, True)))
    for other in found[1:]:
        assert float(found[0][0]) == float(other[0])
        assert all(torch.equal(bits(one), bits(same)) for one, same in zip(found[0][1:], other[1:], strict=True))


def test_an_example_whose_negatives_are_all_excluded_has_no_loss() -> None:
    inputs = draw(3, 20, 4)
    inputs[4] = torch.ones(3, 20, dtype=torch.bool)
    loss, to_queries, to_items, to_rights = native_results(inputs, (False, True, False))
    assert float(loss) == 0.0
    assert not to_queries.any()
    assert not to_items.any()
    assert not to_rights.any()


def test_far_scores_have_no_weight_and_nan_is_not_hidden() -> None:
    queries, items = torch.tensor([[1.0]]), torch.tensor([[-500.0], [2.0]])
    found = shared_softmax(queries, items, torch.tensor([2.0]), weight=1.0)
    assert found.loss == pytest.approx(0.6931472)
    assert found.to_items[:, 0].tolist() == pytest.approx([0.0, 0.5])
    broken = shared_softmax(queries, torch.tensor([[torch.nan], [2.0]]), torch.tensor([2.0]), weight=1.0)
    assert torch.isnan(torch.tensor(broken.loss))


@pytest.mark.parametrize("is_cosine", [False, True])
def test_native_and_torch_train_alike(is_cosine: bool) -> None:
    similarity = DotProduct(dim=5, cosine=is_cosine, temperature=0.5)
    generator = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(count, 5, generator=generator).requires_grad_() for count in (40, 30))
    contrast = Contrast(
        torch.randint(30, (40,), generator=generator),
        torch.randint(30, (1, 60), generator=generator),  # with duplicates
        (40,),
        offsets=torch.randn(1, 60, generator=generator),
    )
    found = []
    for kernel in KernelName:
        queries.grad = items.grad = None
        with use_kernel(kernel):
            losses = backward_sampled_softmax(
                similarity,
                similarity.query_parts(queries),
                similarity.item_parts(items),
                contrast,
                balance_weight=0.1,
                num_examples=80,
            )
        assert queries.grad is not None
        assert items.grad is not None
        found.append([torch.tensor(losses.softmax), queries.grad, items.grad])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6, check_dtype=False)


def test_other_precisions_are_left_to_torch() -> None:
    assert not can_share_softmax(torch.zeros(2, 2).double())
    assert can_share_softmax(torch.zeros(2, 2))
