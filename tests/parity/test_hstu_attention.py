"""HSTU and SASRec against plain loops in fp64: whole encoders, single blocks, and every history on its own."""

import pytest
import torch
from torch import nn

from railsearch.encoders import HSTU, Histories, SASRec
from tests.parity import naive_encoders

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
