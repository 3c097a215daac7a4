"""HSTU and SASRec against plain loops in fp64: whole encoders, single blocks, and every history on its own."""

import pytest
import torch
from torch import Tensor, nn

from railsearch.encoders import HSTU, Histories, SASRec
from railsearch.encoders.sequence import hstu, packing
from railsearch.encoders.sequence.hstu import attend, lay_out
from railsearch.encoders.sequence.packing import group_histories
from tests.support import naive_encoders

LENGTHS = [3, 1, 7, 4, 6]


def give_weights_that_matter(encoder: nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)


def histories() -> Histories:
    generator = torch.Generator().manual_seed(4)
    events = sum(LENGTHS)
    gaps = torch.randn(events, generator=generator).mul(4).add(5).exp().long()
    times = gaps.cumsum(dim=0)
    return Histories(
        items=torch.randint(0, 9, (events,), generator=generator),
        times=times,
        next_times=times + torch.randint(0, 100_000, (events,), generator=generator),
        lengths=torch.tensor(LENGTHS),
    )


def one_by_one() -> list[tuple[list[int], list[int], list[int]]]:
    given = histories()
    columns = (given.items.split(LENGTHS), given.times.split(LENGTHS), given.next_times.split(LENGTHS))
    return [(items.tolist(), times.tolist(), next_times.tolist()) for items, times, next_times in zip(*columns)]  # noqa: B905


@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 6), (2, 3), (3, 4)])
@pytest.mark.parametrize("normalizes_output", [True, False])
def test_hstu(num_heads: int, head_dim: int, normalizes_output: bool) -> None:
    encoder = HSTU(
        num_items=9, dim=6, num_blocks=2, num_heads=num_heads, head_dim=head_dim, max_length=8,
        normalizes_output=normalizes_output,
    ).eval()  # fmt: skip
    give_weights_that_matter(encoder)
    expected = torch.tensor(
        [row for history in one_by_one() for row in naive_encoders.hstu(encoder, *history)], dtype=torch.float64
    )
    torch.testing.assert_close(encoder(histories()).double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(encoder.double()(histories()), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("num_heads", [1, 2, 3])
@pytest.mark.parametrize("normalizes_output", [True, False])
def test_sasrec(num_heads: int, normalizes_output: bool) -> None:
    encoder = SASRec(
        num_items=9, dim=6, num_blocks=2, num_heads=num_heads, max_length=8, normalizes_output=normalizes_output
    ).eval()
    give_weights_that_matter(encoder)
    expected = torch.tensor(
        [row for items, _, _ in one_by_one() for row in naive_encoders.sasrec(encoder, items)], dtype=torch.float64
    )
    torch.testing.assert_close(encoder(histories()).double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(encoder.double()(histories()), expected, rtol=1e-10, atol=1e-10)


def plain_attention(
    inputs: Tensor, distance_bias: Tensor, time_bias: Tensor, times: Tensor, next_times: Tensor
) -> Tensor:
    """One history, v, q and k (n, 3, H, d), as the formula reads; gradients are torch's own."""
    values, queries, keys = inputs.permute(1, 2, 0, 3)  # (H, n, d) each
    positions = torch.arange(len(inputs))
    seconds = (next_times[:, None] - times).abs().clamp(min=1).double()
    buckets = (seconds.log() / 0.301).floor().clamp(max=128).long()
    bias = distance_bias[(positions[:, None] - positions).clamp(min=0)] + time_bias[buckets]
    weights = torch.tril(torch.nn.functional.silu(queries @ keys.mT + bias))
    return (weights @ values).transpose(0, 1).flatten(1)


def test_attention_and_its_gradients_at_full_length() -> None:
    lengths = [200, 37, 199, 150, 64, 65, 1, 128, 151]
    generator = torch.Generator().manual_seed(5)
    events = sum(lengths)
    times = torch.randn(events, generator=generator).mul(3).add(4).exp().long().cumsum(dim=0)
    given = Histories(torch.zeros_like(times), times, times + 100, torch.tensor(lengths))
    encoder = HSTU(num_items=1, num_blocks=1, seed=0).double()
    (block,) = encoder.blocks
    rows = torch.randn(events, 150, generator=generator, dtype=torch.float64).requires_grad_()
    outcome = torch.randn(events, 50, generator=generator, dtype=torch.float64)
    weights = (rows, block.distance_bias, block.time_bias)

    layout = lay_out(given, group_histories(given.lengths, num_heads=2))
    assert len(layout.packing.shapes) > 3
    assert max(len(tiles) for tiles in layout.tiles) > 3
    outputs = attend(rows, block.distance_bias, block.time_bias, num_heads=2, layout=layout)
    expected = torch.cat(
        [
            plain_attention(own.view(-1, 3, 2, 25), block.distance_bias, block.time_bias, own_times, own_times + 100)
            for own, own_times in zip(rows.split(lengths), times.split(lengths), strict=True)
        ]
    )
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    own_gradients = torch.autograd.grad(outputs, weights, outcome)
    expected_gradients = torch.autograd.grad(expected, weights, outcome)
    for own, other in zip(own_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-9)


def test_gradcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hstu, "QUERIES_PER_TILE", 3)
    monkeypatch.setattr(packing, "SPARE_SCORES_PER_HISTORY", 26)
    encoder = HSTU(num_items=9, dim=4, num_blocks=1, num_heads=2, head_dim=2, max_length=8).double()
    give_weights_that_matter(encoder)
    (block,) = encoder.blocks
    layout = lay_out(histories(), group_histories(histories().lengths, num_heads=2))
    assert len(layout.packing.shapes) == 3
    rows = torch.randn(21, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def attention(*weights: Tensor) -> Tensor:
        return attend(*weights, num_heads=2, layout=layout)

    assert torch.autograd.gradcheck(attention, (rows, block.distance_bias, block.time_bias))
