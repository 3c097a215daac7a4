"""The paper's workloads as synthetic worlds: right sizes, real projections, and structure."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from railsearch import Average, Index
from railsearch.data import ShapeName, make_shape
from railsearch.data.synthetic import shapes as module
from railsearch.errors import InvalidInputError
from railsearch.similarity import GateInput, Projection


@pytest.mark.parametrize(
    ("name", "num_items", "components", "item_shape", "num_gates"),
    [
        ("ml-20m", 24_186, (8, 4, 128), (256,), 3),
        ("books", 674_044, (8, 8, 32), (64,), 3),
        ("nq320k", 109_739, (4, 4, 768), (4, 768), 1),
    ],
)
def test_sizes_are_the_papers(
    name: str, num_items: int, components: tuple[int, int, int], item_shape: tuple[int, ...], num_gates: int
) -> None:
    assert module.SIZES[ShapeName(name)].num_items == num_items
    shape = make_shape(name, num_items=50, num_queries=3)
    similarity = shape.similarity
    found = similarity.num_query_components, similarity.num_item_components, similarity.component_dim
    assert found == components
    assert shape.item_embeddings.shape == (50, *item_shape)
    assert shape.query_components.shape == (3, components[0], components[2])
    assert len(similarity.gate_inputs) == num_gates
    assert similarity.gate_dim == 128
    assert not similarity.training
    lengths = shape.query_components.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


@pytest.mark.parametrize("name", list(ShapeName))
def test_same_seed_same_world(name: ShapeName) -> None:
    first, second, other = (make_shape(name, num_items=40, num_queries=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.item_embeddings, second.item_embeddings)
    assert torch.equal(first.query_components, second.query_components)
    assert not torch.equal(first.item_embeddings, other.item_embeddings)
    for key, value in first.similarity.state_dict().items():
        assert torch.equal(value, second.similarity.state_dict()[key]), key


@pytest.mark.parametrize("name", [ShapeName.ML_20M, ShapeName.BOOKS])
def test_item_side_is_a_real_projection(name: ShapeName) -> None:
    shape = make_shape(name, num_items=60, num_queries=2)
    similarity = shape.similarity
    assert similarity.item_projection is Projection.LINEAR
    assert similarity.gate_inputs == set(GateInput)
    weight = similarity.state_dict()["item_network.output.weight"]
    projected = shape.item_embeddings @ weight.T
    components = projected.view(60, similarity.num_item_components, similarity.component_dim)
    lengths = components.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=1e-4)  # of tastes carried over whole
    torch.testing.assert_close(similarity.item_parts(shape.item_embeddings).components, F.normalize(components, dim=-1))
    assert int(torch.linalg.matrix_rank(shape.item_embeddings)) == min(60, shape.item_embeddings.shape[1])


@pytest.mark.parametrize("name", list(ShapeName))
def test_components_lie_around_topics(name: ShapeName) -> None:
    """Two components are either about as far apart as chance has it, or share a topic: far more than chance allows."""
    shape = make_shape(name, num_items=400, num_queries=2)
    components = shape.similarity.item_parts(shape.item_embeddings).components.flatten(0, 1)
    cosines = (components @ components.T)[~torch.eye(len(components), dtype=torch.bool)]
    noise = F.normalize(torch.randn(800, module.SIZES[name].taste_dim, generator=torch.Generator().manual_seed(0)))
    by_chance = (noise @ noise.T)[~torch.eye(len(noise), dtype=torch.bool)]
    far = 1 / (1 + module.SPREAD**2) * 0.9
    surplus = float((cosines > far).float().mean()) - float((by_chance > far).float().mean())
    # One topic in NUM_TOPICS by chance; a row's own components share their main topic much more often.
    assert surplus > 0.3 / module.NUM_TOPICS
    own = shape.similarity.item_parts(shape.item_embeddings).components
    assert float((own[:, 0] * own[:, 1]).sum(dim=-1).mean()) > 0.15


@pytest.mark.parametrize("name", list(ShapeName))
def test_sharpness_goes_from_the_average_to_the_best(name: ShapeName) -> None:
    def compare(sharpness: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = make_shape(name, num_items=80, num_queries=3, sharpness=sharpness)
        found = shape.similarity.compare(
            shape.similarity.query_parts(shape.query_components), shape.similarity.item_parts(shape.item_embeddings)
        )
        return found.scores, found.component_scores, found.gate_weights

    scores, component_scores, weights = compare(0.0)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / weights.shape[-1]))
    torch.testing.assert_close(scores, component_scores.mean(dim=-1))
    gaps = []
    for sharpness in (0.0, 0.2, 1.0, 20.0):
        scores, component_scores, _ = compare(sharpness)
        gaps.append(float((component_scores.amax(dim=-1) - scores).mean()))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.2 < gaps[0]


def test_sides_of_the_gate_matter_a_little() -> None:
    shape = make_shape("ml-20m", num_items=80, num_queries=3)
    query_parts = shape.similarity.query_parts(shape.query_components)
    item_parts = shape.similarity.item_parts(shape.item_embeddings)
    assert query_parts.gate is not None
    assert item_parts.gate is not None
    sway = (query_parts.gate[:, None] * item_parts.gate).square().mean().sqrt()
    assert float(sway) == pytest.approx(module.SIDE_SHARE * shape.sharpness, rel=0.5)


def test_average_finds_all_at_sharpness_0_and_little_when_sharp() -> None:
    def recall(sharpness: float) -> float:
        shape = make_shape("ml-20m", num_items=3000, num_queries=8, sharpness=sharpness)
        index = Index.build(shape.similarity, shape.item_embeddings)
        truth = index.search(shape.query_components, 50)
        found = index.search(shape.query_components, 50, Average(60))
        return float((found.scores >= truth.kth_score[:, None] - 1e-3).float().mean())

    assert recall(0.0) == 1.0
    assert recall(2.0) < 0.6


def test_chunks_are_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_CHUNK", 7)
    shape = make_shape("books", num_items=30, num_queries=2)
    assert len(shape.item_embeddings.unique(dim=0)) == 30


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ml20m", {}, "shape is 'ml20m'; choose from: ml-20m, books, nq320k"),
        ("books", {"num_items": 0}, "num_items is 0"),
        ("books", {"num_queries": 0}, "num_queries is 0"),
        ("books", {"sharpness": -0.1}, "sharpness is -0.1"),
        ("books", {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_options(name: str, options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_shape(name, **options)
