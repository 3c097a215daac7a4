"""HSTU and SASRec against plain loops in fp64, and the tiled attention of HSTU against its plain reference."""

import math

import pytest
import torch
from torch import Tensor, nn

from railsearch.encoders import HSTU, Histories, SASRec
from railsearch.encoders.sequence import packing, tiled_attention
from railsearch.encoders.sequence.packing import group_histories
from railsearch.encoders.sequence.tiled_attention import attend, attend_plainly, plan_attention
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


def test_the_plain_reference_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(7)
    values, queries, keys = torch.randn(3, 1, 9, 4, generator=generator, dtype=torch.float64)  # (1, n, d) each
    distance_bias, time_bias = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (9, 129))
    times = torch.randint(0, 10**7, (9,), generator=generator).sort().values
    next_times = times + 1000

    def bias(i: int, j: int) -> float:
        bucket = min(128, math.floor(math.log(max(1, abs(int(next_times[i] - times[j])))) / 0.301))
        return float(distance_bias[i - j] + time_bias[bucket])

    expected = naive_encoders.hstu_attention(queries[0].tolist(), keys[0].tolist(), values[0].tolist(), bias, 1)
    found = attend_plainly(values, queries, keys, distance_bias, time_bias, times=times, next_times=next_times)
    torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("lengths", "queries_per_tile"),
    [
        ([200, 37, 199, 150, 64, 65, 1, 128, 151], 64),
        ([1], 64),
        ([64], 64),
        ([65, 65, 65], 64),
        ([5, 1, 4, 9, 9, 2], 1),
        ([5, 1, 4, 9, 9, 2], 4),
    ],
)
def test_tiled_attention_and_its_gradients_are_those_of_the_plain_reference(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], queries_per_tile: int
) -> None:
    monkeypatch.setattr(tiled_attention, "QUERIES_PER_TILE", queries_per_tile)
    generator = torch.Generator().manual_seed(5)
    num_events, num_heads, head_dim = sum(lengths), 2, 25
    times = torch.randn(num_events, generator=generator).mul(3).add(4).exp().long().cumsum(dim=0)
    given = Histories(torch.zeros_like(times), times, times + 100, torch.tensor(lengths))
    inputs, outcome = (
        torch.randn(num_events, parts * num_heads * head_dim, generator=generator, dtype=torch.float64)
        for parts in (3, 1)
    )
    biases = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (200, 129))
    weights = tuple(each.requires_grad_() for each in (inputs, *biases))

    layout = plan_attention(given, group_histories(given.lengths, num_heads=num_heads))
    assert max(len(tiles) for tiles in layout.tiles) == math.ceil(max(lengths) / queries_per_tile)
    outputs = attend(*weights, num_heads=num_heads, layout=layout)
    rows, distance_bias, time_bias = weights
    expected = torch.cat(
        [
            attend_plainly(
                *own.view(-1, 3, num_heads, head_dim).permute(1, 2, 0, 3), distance_bias, time_bias,
                times=own_times, next_times=own_times + 100,
            ).transpose(0, 1).flatten(1)
            for own, own_times in zip(rows.split(lengths), times.split(lengths), strict=True)
        ]
    )  # fmt: skip
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    own_gradients = torch.autograd.grad(outputs, weights, outcome)
    expected_gradients = torch.autograd.grad(expected, weights, outcome)
    for own, other in zip(own_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-9)


def test_gradcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_attention, "QUERIES_PER_TILE", 3)
    monkeypatch.setattr(packing, "SPARE_SCORES_PER_HISTORY", 26)
    encoder = HSTU(num_items=9, dim=4, num_blocks=1, num_heads=2, head_dim=2, max_length=8).double()
    give_weights_that_matter(encoder)
    (block,) = encoder.blocks
    layout = plan_attention(histories(), group_histories(histories().lengths, num_heads=2))
    assert len(layout.packing.shapes) == 3
    rows = torch.randn(21, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def attention(*weights: Tensor) -> Tensor:
        return attend(*weights, num_heads=2, layout=layout)

    assert torch.autograd.gradcheck(attention, (rows, block.distance_bias, block.time_bias))
