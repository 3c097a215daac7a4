"""Multi pooling: every component begins as the mean, then each sees its own tokens; padding changes nothing."""

import math

import pytest
import torch
from torch import Generator, Tensor

from railsearch.encoders import TextEncoderConfig
from railsearch.encoders.text.multi_pooling import MultiPooling
from railsearch.encoders.text.pooling import pool_mean

DIM = 8


def make_pooling(num_components: int = 4, *, noise: float = 0.0, spread: float = 0.0) -> MultiPooling:
    generator = Generator().manual_seed(0)
    pooling = MultiPooling(dim=DIM, num_components=num_components, spread=spread, generator=generator)
    with torch.no_grad():
        pooling.change.weight.add_(torch.randn(DIM, DIM, generator=generator), alpha=noise)
    return pooling


def make_outputs() -> tuple[Tensor, Tensor]:
    outputs = torch.randn(3, 5, DIM, generator=Generator().manual_seed(1))
    return outputs, torch.arange(5) < torch.tensor([[5], [2], [1]])


def test_every_component_begins_as_the_mean() -> None:
    outputs, is_real = make_outputs()
    assert torch.equal(make_pooling()(outputs, is_real), pool_mean(outputs, is_real).expand(-1, 4, -1))


@pytest.mark.parametrize("spread", [0.5, 1.0])
@torch.no_grad()
def test_components_may_begin_nearer_to_their_pools(spread: float) -> None:
    outputs, is_real = make_outputs()
    pooling = make_pooling(spread=spread)
    mean, pools = (
        pool_mean(outputs, is_real),
        pooling.weights(outputs, is_real) @ outputs.masked_fill(~is_real[..., None], 0.0),
    )
    torch.testing.assert_close(pooling(outputs, is_real), torch.lerp(mean.expand_as(pools), pools, spread))


@torch.no_grad()
def test_components_are_those_of_a_naive_loop() -> None:
    pooling, (outputs, is_real) = make_pooling(noise=0.5), make_outputs()
    found = pooling(outputs, is_real)
    for text in range(3):
        tokens = outputs[text, is_real[text]].double()
        mean = tokens.mean(dim=0)
        for component in range(4):
            powers = []
            for token in tokens:
                scaled = (token - token.mean()) / math.sqrt(float(token.var(unbiased=False)) + 1e-5)
                powers.append(math.exp(float(scaled @ pooling.queries[component].double())))
            pool = sum(power * token for power, token in zip(powers, tokens, strict=True)) / sum(powers)
            expected = mean + pooling.change.weight.double() @ (pool - mean)
            torch.testing.assert_close(found[text, component].double(), expected, rtol=1e-4, atol=1e-4)


def test_attention_queries_start_orthogonal_and_all_weights_learn() -> None:
    pooling, (outputs, is_real) = make_pooling(noise=0.1), make_outputs()
    products = pooling.queries.detach() @ pooling.queries.detach().T
    torch.testing.assert_close(products, 4 * torch.eye(4))
    pooling(outputs, is_real).square().sum().backward()
    assert all(float(weight.grad.abs().max()) > 0 for weight in pooling.parameters() if weight.grad is not None)
    assert all(weight.grad is not None for weight in pooling.parameters())


@pytest.mark.parametrize(
    ("pooling", "given", "expected"),
    [
        ("multi", {}, (8, 16, 0.0)),
        ("multi", {"num_item_components": 32}, (8, 32, 0.0)),
        ("multi", {"num_query_components": 4}, (4, 16, 0.0)),
        ("merged", {}, (16, 32, 0.5)),
        ("merged", {"num_item_components": 8, "first_spread": 0.0}, (16, 8, 0.0)),
    ],
)
def test_settings_that_are_left_open(pooling: str, given: dict[str, int], expected: tuple[int, int, float]) -> None:
    config = TextEncoderConfig(base="models/minilm", pooling=pooling, **given)  # type: ignore[arg-type]
    assert (config.num_query_components, config.num_item_components, config.first_spread) == expected
