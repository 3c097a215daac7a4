"""A learned temperature: a plain number for kernels and certificates, a weight for training; and dropped components."""

import math
from pathlib import Path

import pytest
import torch

from railsearch import DotProduct, Index, MixtureOfLogits, TwoPass, load_similarity, save_similarity
from railsearch.errors import InvalidInputError
from railsearch.kernels import KernelName, training_scores, use_kernel
from railsearch.similarity import Similarity, fingerprint
from railsearch.similarity.projection import drop_components
from railsearch.testing import check_similarity_contract


def mixture(**settings: object) -> MixtureOfLogits:
    return MixtureOfLogits(
        query_dim=6, item_dim=6, num_query_components=3, num_item_components=2, component_dim=4, projection_dim=8,
        gate_dim=8, temperature=0.2, gate_dropout=0.0, item_dropout=0.0, seed=0, **settings,
    )  # fmt: skip


@pytest.fixture(params=["mixture", "cosine"])
def similarity(request: pytest.FixtureRequest) -> Similarity:
    if request.param == "mixture":
        return mixture(learns_temperature=True)
    return DotProduct(dim=6, cosine=True, temperature=0.2, learns_temperature=True)


@pytest.mark.parametrize("kernel", [KernelName.TORCH, None], ids=["torch", "default"])
def test_its_gradient_is_that_of_the_formula(similarity: Similarity, kernel: KernelName | None) -> None:
    similarity.train()
    queries, items = torch.randn(5, 6), torch.randn(7, 6)
    weights = torch.randn(5, 7)
    change = similarity.own_temperature.change
    change.grad = None
    with use_kernel(kernel) if kernel else torch.enable_grad():
        scores = training_scores(similarity, similarity.query_parts(queries), similarity.item_parts(items))
        (scores * weights).sum().backward()
    found = change.grad.item()

    def total(shift: float) -> float:
        moved = type(similarity)(**{**similarity.config, "temperature": 0.2 * math.exp(shift)}).double().eval()
        moved.load_state_dict(similarity.state_dict())
        return float((moved(queries.double(), items.double()) * weights).sum().item())

    assert found == pytest.approx((total(1e-5) - total(-1e-5)) / 2e-5, rel=1e-3, abs=1e-3)


def test_it_is_a_plain_number_that_is_saved(similarity: Similarity, tmp_path: Path) -> None:
    with torch.no_grad():
        similarity.own_temperature.change.fill_(-0.5)
    similarity.eval()
    assert similarity.temperature == pytest.approx(0.2 * math.exp(-0.5))
    assert similarity.config["temperature"] == 0.2
    save_similarity(similarity, tmp_path / "similarity")
    loaded = load_similarity(tmp_path / "similarity")
    assert loaded.temperature == similarity.temperature
    assert fingerprint(loaded) == fingerprint(similarity)
    loaded.temperature = 0.3
    assert loaded.temperature == pytest.approx(0.3)


def test_it_keeps_the_contract() -> None:
    check_similarity_contract(mixture(learns_temperature=True, component_dropout=0.2))


def test_searches_are_certified_with_the_learned_value() -> None:
    similarity = mixture(learns_temperature=True).eval()
    with torch.no_grad():
        similarity.own_temperature.change.fill_(-1.0)
    queries, items = torch.randn(4, 6), torch.randn(50, 6)
    index = Index.build(similarity, items)
    found = index.search(queries, 5, TwoPass())
    assert bool(found.is_exact.all())
    torch.testing.assert_close(found.scores, similarity(queries, items).topk(5).values.detach(), atol=1e-4, rtol=1e-4)


def test_the_settings_of_older_folders_and_their_fingerprints_stay() -> None:
    assert "learns_temperature" not in mixture().config
    assert "component_dropout" not in mixture().config
    assert "learns_temperature" not in DotProduct(dim=2).config
    assert not any("temperature" in name for name in mixture().state_dict())


def test_dropped_components_are_zero_and_the_rest_is_scaled_up() -> None:
    torch.manual_seed(0)
    components = torch.ones(400, 4, 3)
    dropped = drop_components(components, 0.5)
    kept = (dropped != 0).any(dim=2)  # (B, Pq)
    assert bool(kept.any(dim=1).all())
    assert bool(((dropped != 0).all(dim=2) == kept).all())
    torch.testing.assert_close(dropped.sum(dim=1), torch.full((400, 3), 4.0))
    share = float(kept.float().mean())
    assert 0.45 < share < 0.65  # a half, and the queries that would have none left
    assert drop_components(components, 0.0) is components


def test_components_are_dropped_only_while_training() -> None:
    similarity, queries = mixture(component_dropout=0.5), torch.randn(30, 6)
    lengths = similarity.train().query_parts(queries).components.norm(dim=-1)  # (B, Pq)
    assert bool((lengths == 0).any())
    torch.testing.assert_close(similarity.eval().query_parts(queries).components.norm(dim=-1), torch.ones(30, 3))
    with pytest.raises(InvalidInputError, match="component_dropout is 1"):
        mixture(component_dropout=1.0)
