"""Late interaction: its formula against naive loops, its limits, and everything that an index promises of it."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch import BruteForce, Combined, Index, TwoPass, fit_similarity
from railsearch.errors import InvalidInputError
from railsearch.kernels.blocks import SCORING_VALUES
from railsearch.similarity import LateInteraction, MixtureOfLogits, late_interaction
from railsearch.similarity.parts import all_products
from railsearch.testing import check_similarity_contract


def make_late(pq: int = 3, px: int = 5, *, noise: float = 1.0, **settings: float) -> LateInteraction:
    late = LateInteraction(num_query_components=pq, num_item_components=px, component_dim=6, **settings)  # type: ignore[arg-type]
    generator = Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in late.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=noise)
    return late.train(False)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def naive_score(late: LateInteraction, query: Tensor, item: Tensor) -> float:
    """Score one query (Pq, d) and one item (Px, d) with plain loops over Python numbers."""

    def unit(rows: Tensor) -> list[list[float]]:
        return [[value / max(1e-6, math.hypot(*row)) for value in row] for row in rows.double().tolist()]

    def dot(left: list[float], right: list[float]) -> float:
        return sum(a * b for a, b in zip(left, right, strict=True))

    def softmax(logits: list[float]) -> list[float]:
        powers = [math.exp(each - max(logits)) for each in logits]
        return [power / sum(powers) for power in powers]

    weights = {name: weight.double().tolist() for name, weight in late.state_dict().items()}
    if late.projects_components:
        query, item = (
            torch.stack([row + change @ row for row, change in zip(rows, late.state_dict()[name], strict=True)])
            for name, rows in (("query_projections.change", query), ("item_projections.change", item))
        )
    f, g = unit(query), unit(item)
    outer = softmax(
        [dot(weights["query_salience"], each) + b for each, b in zip(f, weights["query_bias"], strict=True)]
    )
    by_item = [dot(weights["item_salience"], each) + b for each, b in zip(g, weights["item_bias"], strict=True)]
    total = 0.0
    for i, own in enumerate(f):
        beta = late.sharpness + weights["sharpness_change"][i]
        scores = [dot(own, each) / late.temperature for each in g]
        inner = softmax([beta * score + b for score, b in zip(scores, by_item, strict=True)])
        total += outer[i] * dot(inner, scores)
    return total


@pytest.mark.parametrize(("pq", "px"), [(1, 1), (1, 4), (4, 1), (3, 5)])
def test_it_keeps_the_contract(pq: int, px: int) -> None:
    check_similarity_contract(make_late(pq, px))
    check_similarity_contract(make_late(pq, px, projects_components=True))


@pytest.mark.parametrize("projects", [False, True])
def test_scores_are_those_of_a_naive_loop(projects: bool) -> None:
    late, queries, items = make_late(projects_components=projects), draw(4, 3, 6), draw(7, 5, 6, seed=2)
    expected = torch.tensor([[naive_score(late, query, item) for item in items] for query in queries])
    torch.testing.assert_close(late(queries, items), expected, rtol=1e-4, atol=1e-4)
    found = late.compare(late.query_parts(queries), late.item_parts(items))
    torch.testing.assert_close(found.gate_weights.sum(dim=-1), torch.ones(4, 7))


def test_projections_start_as_the_identity_learn_and_leave_absent_components_absent() -> None:
    plain, late = make_late(noise=0.0), make_late(noise=0.0, projects_components=True)
    queries, items = draw(4, 3, 6), draw(7, 5, 6, seed=2)
    assert torch.equal(late(queries, items), plain(queries, items))
    assert "projects_components" not in plain.config  # fingerprints of models without them stay as they were
    late.train()(queries, items).square().sum().backward()
    for projections in (late.query_projections, late.item_projections):
        (change,) = projections.parameters()
        assert change.grad is not None
        assert bool((change.grad.abs().amax(dim=(1, 2)) > 0).all())  # of every component
    moved = make_late(projects_components=True)
    items[:, 3:] = 0
    assert bool((moved.item_parts(items).components[:, 3:] == 0).all())


def test_it_is_the_mean_without_sharpness_and_tends_to_maxsim() -> None:
    queries, items = draw(4, 3, 6), draw(7, 5, 6, seed=2)
    cosines = F.normalize(queries, dim=-1)[:, None] @ F.normalize(items, dim=-1)[None].mT  # (B, N, Pq, Px)
    mean = make_late(noise=0.0, sharpness=0.0, temperature=1.0)
    torch.testing.assert_close(mean(queries, items), cosines.mean(dim=(2, 3)))
    sharp = make_late(noise=0.0, sharpness=1e4, temperature=1.0)
    torch.testing.assert_close(sharp(queries, items), cosines.amax(dim=3).mean(dim=2), rtol=1e-3, atol=1e-3)


def test_equal_components_are_the_cosine_whatever_the_gate() -> None:
    queries, items = draw(4, 6), draw(7, 6, seed=2)
    late = make_late(temperature=0.05)
    found = late(queries[:, None].expand(-1, 3, -1), items[:, None].expand(-1, 5, -1))
    torch.testing.assert_close(
        found, F.cosine_similarity(queries[:, None], items[None], dim=-1) / 0.05, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 1e6])
def test_a_component_of_zeros_is_absent(sharpness: float) -> None:
    full, queries, items = make_late(2, 3, sharpness=sharpness), draw(4, 2, 6), draw(7, 3, 6, seed=2)
    padded = make_late(3, 5, sharpness=sharpness)
    with torch.no_grad():
        for name, weight in full.state_dict().items():
            weight.copy_(padded.state_dict()[name][: len(weight)])
    more_queries, more_items = F.pad(queries, (0, 0, 0, 1)), F.pad(items, (0, 0, 0, 2))
    items[0] = -queries[0, :1]  # all its scores with that component are the lowest
    more_items[0, :3] = items[0]
    torch.testing.assert_close(padded(more_queries, more_items), full(queries, items))
    absent = padded(more_queries, torch.zeros(1, 5, 6))
    torch.testing.assert_close(absent, torch.zeros(4, 1))


def test_component_dropout_only_in_training_and_weights_still_sum_to_1() -> None:
    late = make_late(component_dropout=0.5)
    queries, items = draw(40, 3, 6), draw(50, 5, 6, seed=2)
    assert torch.equal(late(queries, items), make_late()(queries, items))
    late.train()
    torch.manual_seed(0)
    found = late.compare(late.query_parts(queries), late.item_parts(items))
    weights = found.gate_weights.view(40, 50, 3, 5)
    torch.testing.assert_close(weights.sum(dim=(2, 3)), torch.ones(40, 50))
    assert 0.2 < float((weights.sum(dim=3) < 1e-6).float().mean()) < 0.8
    assert bool((found.scores <= found.component_scores.amax(dim=-1) + 1e-4).all())


def test_training_learns_which_component_matches() -> None:
    # Only component 2 of an item tells anything of its queries; the other components are noise.
    items = draw(40, 5, 6)
    queries = F.normalize(items[:, 2:3] + 0.3 * draw(40, 3, 6, seed=3), dim=-1)
    pairs = torch.arange(40)[:, None].expand(-1, 2)
    late = LateInteraction(num_query_components=3, num_item_components=5, component_dim=6, sharpness=0.0)
    fit_similarity(
        late, queries, items, pairs, epochs=10, batch_size=40, learning_rate=0.2, weight_decay=0.0, show_progress=False
    )
    found = late.compare(late.query_parts(queries), late.item_parts(items))
    weights = found.gate_weights.detach()[pairs[:, 0], pairs[:, 1]].view(-1, 3, 5)
    assert float(weights[..., 2].sum(dim=1).mean()) > 0.5


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("scan", ["full", "int8"])
def test_an_index_certifies_with_every_precision_filter_and_deletion(tmp_path: Path, precision: str, scan: str) -> None:
    late, queries, items = make_late(), draw(5, 3, 6), draw(200, 5, 6, seed=2)
    Index.build(late, items[:150], path=tmp_path / "index", precision=precision, scan=scan, show_progress=False).close()
    with Index.open(tmp_path / "index") as index:
        index.add(items[150:], torch.arange(150, 200))
        index.remove(torch.arange(0, 200, 7))
        allow = torch.arange(0, 200, 3)
        for strategy in (TwoPass(), Combined(5, 40)):
            expected = index.search(queries, 6, BruteForce(), allow=allow)
            found = index.search(queries, 6, strategy, allow=allow)
            assert not set(found.ids.flatten().tolist()) & set(range(0, 200, 7))
            assert set(found.ids.flatten().tolist()) <= set(range(0, 200, 3))
            assert bool((expected.scores[:, -1] <= found.ceiling.maximum(found.scores[:, -1]) + 1e-5).all())
            torch.testing.assert_close(found.scores[found.is_exact], expected.scores[found.is_exact])
        assert bool(index.search(queries, 6, TwoPass(), allow=allow).is_exact.all())
        explanation = index.explain(queries[0], int(expected.ids[0, 0]))
        assert explanation.gate_weights.shape == (3, 5)


def test_component_scores_of_all_items_are_never_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(query_components: Tensor, item_components: Tensor) -> Tensor:
        sizes.append(len(query_components) * len(item_components))
        return all_products(query_components, item_components)

    monkeypatch.setattr(late_interaction, "all_products", counted)
    late = make_late(16, 32)
    queries, items = draw(32, 16, 6), draw(500, 32, 6, seed=2)
    monkeypatch.setenv("RAILSEARCH_KERNEL", "torch")  # the native kernel has no such matrices at all
    Index.build(late, items, show_progress=False).search(queries, 3, BruteForce())
    assert max(sizes) * 16 * 32 <= SCORING_VALUES < 32 * 500 * 16 * 32


def test_wrong_input() -> None:
    with pytest.raises(InvalidInputError, match=r"sharpness is -1\.0"):
        LateInteraction(sharpness=-1)
    with pytest.raises(InvalidInputError, match=r"num_query_components \* num_item_components is 20000"):
        LateInteraction(num_query_components=100, num_item_components=200)
    late = make_late()
    with pytest.raises(InvalidInputError, match="user_ids was given"):
        late.query_parts(draw(2, 3, 6), user_ids=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InvalidInputError, match="queries"):
        late.query_parts(draw(2, 6))
    mol = MixtureOfLogits(
        num_query_components=3, num_item_components=5, component_dim=6, query_projection="ready",
        item_projection="ready", seed=0,
    ).eval()  # fmt: skip
    with pytest.raises(InvalidInputError, match="no gate of late interaction"):
        late.score(mol.query_parts(draw(2, 3, 6)), late.item_parts(draw(2, 5, 6)))
