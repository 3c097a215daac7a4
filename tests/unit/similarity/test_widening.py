"""A tuned cosine or dot product with more components: the same scores, at first."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch import DotProduct, MixtureOfLogits, fit_similarity
from railsearch.errors import InvalidInputError
from railsearch.similarity import widen
from tests.support.trials import trials


def make_tuned(*, is_cosine: bool, dim: int = 6, seed: int = 0) -> MixtureOfLogits:
    tuned = MixtureOfLogits.around(
        dim=dim, cosine=is_cosine, dot_product=not is_cosine, num_query_components=1, num_item_components=1,
        temperature=0.3, seed=seed,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in tuned.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.5)
    return tuned.eval()


@settings(deadline=None, max_examples=trials(10, 30))
@given(
    is_cosine=st.booleans(),
    num_query=st.integers(1, 4),
    num_item=st.integers(1, 4),
    seed=st.integers(0, 2**31 - 1),
    inputs=st.sampled_from([(), ("query",), ("pair",), ("query", "item", "pair")]),
)
def test_scores_are_those_of_the_tuned_similarity(
    is_cosine: bool, num_query: int, num_item: int, seed: int, inputs: tuple[str, ...]
) -> None:
    tuned = make_tuned(is_cosine=is_cosine, seed=seed)
    wide = widen(
        tuned, num_query_components=num_query, num_item_components=num_item, gate_inputs=inputs, gate_dim=5, seed=seed
    )
    assert (wide.num_query_components, wide.num_item_components) == (num_query, num_item)
    assert not wide.training
    generator = torch.Generator().manual_seed(seed)
    queries, items = torch.randn(4, 6, generator=generator), torch.randn(7, 6, generator=generator)
    torch.testing.assert_close(wide(queries, items), tuned(queries, items), rtol=1e-4, atol=1e-4)


def test_training_never_ends_below_the_tuned_similarity_on_validation() -> None:
    generator = torch.Generator().manual_seed(3)
    queries, items = torch.randn(60, 6, generator=generator), torch.randn(30, 6, generator=generator)
    pairs = torch.stack([torch.arange(60), torch.randint(30, (60,), generator=generator)], dim=1)
    tuned = make_tuned(is_cosine=True)
    before = [weight.clone() for weight in tuned.parameters()]
    wide = widen(tuned, num_query_components=2, num_item_components=2, gate_dim=4, seed=0)
    report = fit_similarity(
        wide, queries, items, pairs[:40], validation_pairs=pairs[40:], epochs=2, batch_size=20, show_progress=False
    )
    start = fit_similarity(
        tuned, queries, items, pairs[:40], validation_pairs=pairs[40:], epochs=0, show_progress=False
    )
    assert report.best.validation is not None
    assert start.best.validation is not None
    assert report.best.validation["MRR"] >= start.best.validation["MRR"] - 1e-6
    assert all(torch.equal(weight, own) for weight, own in zip(before, tuned.parameters(), strict=True))


def test_what_cannot_be_widened_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="do not start as the embedding"):
        widen(MixtureOfLogits(query_dim=4, item_dim=4, num_query_components=1, num_item_components=1))
    with pytest.raises(InvalidInputError, match="cannot be widened"):
        widen(DotProduct(dim=4))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="2 x 3 components already"):
        widen(MixtureOfLogits.around(dim=4, cosine=True, num_query_components=2, num_item_components=3))
