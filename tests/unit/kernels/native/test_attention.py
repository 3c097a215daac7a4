"""The gated attention of HSTU in C++: outputs and gradients of the formula in fp64, dropout, threads and causality."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch.encoders import HSTU, Histories
from railsearch.encoders.sequence.gated_attention import bucket_bounds, plan_gated_attention
from railsearch.encoders.sequence.tiled_attention import (
    NUM_TIME_BUCKETS,
    AttentionLayout,
    attend_plainly,
    time_buckets,
)
from railsearch.kernels import KernelName, use_kernel
from railsearch.kernels.native import AttentionPlan, has_attention, native_attention
from tests.support.native import ISAS, bits, forced
from tests.support.trials import trials

pytestmark = pytest.mark.skipif(not has_attention(), reason="the native kernel of attention is not compiled")

DIVISOR, EPSILON = 3, 0.5
"""A large epsilon: rounding is not multiplied by the inverse of a deviation near zero."""


def make_histories(lengths: list[int], seed: int = 0) -> Histories:
    generator = torch.Generator().manual_seed(seed)
    gaps = torch.randn(sum(lengths), generator=generator).mul(4).add(4).exp().long()
    times = gaps.cumsum(dim=0)
    next_times = times + torch.randint(0, 10**6, (len(times),), generator=generator)
    return Histories(torch.zeros_like(times), times, next_times, torch.tensor(lengths))


def draw(histories: Histories, num_heads: int, head_dim: int, seed: int = 0) -> list[Tensor]:
    """Return inputs, both biases, and a gradient of the outputs."""
    generator = torch.Generator().manual_seed(seed)
    width, num_events, longest = num_heads * head_dim, len(histories.items), int(histories.lengths.max())
    shapes = [(num_events, 4 * width), (longest + 2,), (NUM_TIME_BUCKETS,), (num_events, width)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def results(histories: Histories, tensors: list[Tensor], num_heads: int, *, dropout: float = 0.0) -> list[Tensor]:
    """Return outputs and gradients of the native kernel."""
    *given, upstream = tensors
    own = [each.clone().requires_grad_() for each in given]
    plan = plan_gated_attention(histories, num_heads=num_heads, weights=own[0])
    assert isinstance(plan.way, AttentionPlan)
    torch.manual_seed(7)
    outputs = native_attention(
        *own, num_heads=num_heads, divisor=DIVISOR, epsilon=EPSILON, dropout=dropout, plan=plan.way
    )
    return [outputs.detach(), *torch.autograd.grad(outputs, own, upstream)]


def fp64_results(
    histories: Histories, tensors: list[Tensor], num_heads: int, *, kept: Tensor | None = None
) -> list[Tensor]:
    """Return outputs and gradients of the formula, history by history; outputs are multiplied by `kept`."""
    inputs, distance_bias, time_bias, upstream = (each.double().requires_grad_() for each in tensors)
    sizes = histories.lengths.tolist()
    attended = []
    gates, *others = F.silu(inputs).chunk(4, dim=1)
    for rows, times, next_times in zip(
        torch.stack(others).split(sizes, dim=1), histories.times.split(sizes), histories.next_times.split(sizes),
        strict=True,
    ):  # fmt: skip
        parts = rows.unflatten(2, (num_heads, -1)).transpose(1, 2)  # (3, H, n, d)
        own = attend_plainly(*parts, distance_bias, time_bias, times=times, next_times=next_times)  # (H, n, d)
        attended.append(own.transpose(0, 1).flatten(1))
    everything = torch.cat(attended) / DIVISOR  # (E, H * d)
    outputs = gates * F.layer_norm(everything, everything.shape[-1:], eps=EPSILON)
    if kept is not None:
        outputs = outputs * kept
    gradients = torch.autograd.grad(outputs, [inputs, distance_bias, time_bias], upstream.detach())
    return [outputs.detach(), *gradients]


def check_close(found: list[Tensor], exact: list[Tensor]) -> None:
    for own, other in zip(found, exact, strict=True):
        assert own.shape == other.shape
        assert float((own.double() - other).abs().max()) <= 2e-5 * max(float(other.abs().max()), 1.0)


@settings(deadline=None, max_examples=trials(10, 30))
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    num_heads=st.integers(1, 3),
    head_dim=st.integers(1, 40),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**31 - 1),
)
def test_outputs_and_gradients_are_those_of_the_formula_in_fp64(
    lengths: list[int], num_heads: int, head_dim: int, isa: str, seed: int
) -> None:
    histories = make_histories(lengths, seed)
    tensors = draw(histories, num_heads, head_dim, seed)
    with forced(isa):
        found = results(histories, tensors, num_heads)
    check_close(found, fp64_results(histories, tensors, num_heads))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("lengths", "num_heads", "head_dim"), [([200, 1, 150, 97, 48, 49], 2, 25), ([65], 1, 64)])
def test_long_histories(isa: str, lengths: list[int], num_heads: int, head_dim: int) -> None:
    histories = make_histories(lengths)
    tensors = draw(histories, num_heads, head_dim)
    with forced(isa):
        found = results(histories, tensors, num_heads)
    check_close(found, fp64_results(histories, tensors, num_heads))


@pytest.mark.parametrize("isa", ISAS)
def test_dropout_drops_a_share_and_its_gradient_knows_which(isa: str) -> None:
    histories = make_histories([60, 30, 40])
    tensors = draw(histories, 2, 13)
    with forced(isa):
        found = results(histories, tensors, 2, dropout=0.25)
        again = results(histories, tensors, 2, dropout=0.25)
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(found, again, strict=True))
    is_kept = found[0] != 0
    share = float(is_kept.float().mean())
    assert abs(share - 0.75) < 5 * math.sqrt(0.25 * 0.75 / is_kept.numel())
    check_close(found, fp64_results(histories, tensors, 2, kept=is_kept / 0.75))


@pytest.mark.parametrize("isa", ISAS)
def test_bits_do_not_depend_on_threads(isa: str) -> None:
    histories = make_histories([33, 7, 64, 1, 20, 50])
    tensors = draw(histories, 2, 9)
    with forced(isa, num_threads=1):
        expected = results(histories, tensors, 2, dropout=0.2)
    with forced(isa, num_threads=3):
        found = results(histories, tensors, 2, dropout=0.2)
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("isa", ISAS)
def test_outputs_depend_on_no_later_event_and_on_no_other_history(isa: str) -> None:
    histories = make_histories([37, 50])
    tensors = draw(histories, 2, 7)
    changed = [tensors[0].clone(), *tensors[1:]]
    changed[0][20:37] = 1e3
    changed[0][37 + 30 :] = -1e3
    with forced(isa):
        expected, found = (results(histories, each, 2)[0] for each in (tensors, changed))
    for rows in (slice(0, 20), slice(37, 37 + 30)):
        assert torch.equal(bits(found[rows]), bits(expected[rows]))


def test_bounds_are_those_of_the_buckets() -> None:
    bounds = bucket_bounds()
    assert bool((bounds.diff() >= 0).all())
    reached = bounds[bounds.isfinite()]
    assert time_buckets(reached).tolist()[1:] == list(range(1, len(reached)))
    below = torch.nextafter(reached[1:], torch.zeros(()))
    assert torch.equal(time_buckets(below), time_buckets(reached[1:]) - 1)


def test_other_precisions_and_the_kernel_torch_use_torch() -> None:
    histories = make_histories([3, 4])
    encoder = HSTU(num_items=2, dim=6, num_blocks=2, head_dim=3, max_length=8, seed=0).eval()

    def way() -> object:
        return plan_gated_attention(histories, num_heads=2, weights=encoder.position_table.weight).way

    assert isinstance(way(), AttentionPlan)
    native = encoder(histories)
    with use_kernel(KernelName.TORCH):
        assert isinstance(way(), AttentionLayout)
        torch.testing.assert_close(encoder(histories), native, rtol=1e-4, atol=1e-5)
    encoder.double()
    assert isinstance(way(), AttentionLayout)
