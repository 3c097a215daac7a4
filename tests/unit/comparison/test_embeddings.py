"""`compare` on given embeddings: figures, costs, report, resume, and wrong input."""

import json
from pathlib import Path

import pytest
import torch

from railsearch import compare, evaluate, load_similarity
from railsearch.comparison import Comparison
from railsearch.errors import InvalidInputError
from railsearch.similarity import DotProduct

DIM, NUM_ITEMS, NUM_QUERIES = 8, 60, 300


def make_data(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return queries that point to their item through a stretched space: a linear map repairs the cosine."""
    generator = torch.Generator().manual_seed(seed)
    items = torch.randn(NUM_ITEMS, DIM, generator=generator)
    rows = torch.randint(NUM_ITEMS, (NUM_QUERIES,), generator=generator)
    stretch = torch.linspace(0.1, 3.0, DIM)
    queries = items[rows] * stretch + 0.5 * torch.randn(NUM_QUERIES, DIM, generator=generator)
    pairs = torch.stack([torch.arange(NUM_QUERIES), rows], dim=1)
    return {"query_embeddings": queries, "item_embeddings": items, "pairs": pairs}


@pytest.fixture(scope="module")
def data() -> dict[str, torch.Tensor]:
    return make_data()


@pytest.fixture(scope="module")
def found(data: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    folder = tmp_path_factory.mktemp("compare") / "run"
    return compare(**data, seeds=2, epochs=2, num_components=2, folder=folder, show_progress=False), folder


def test_systems_and_their_costs(found: tuple[Comparison, Path]) -> None:
    report, _ = found
    frozen, tuned, mixture = report.systems
    assert [system.name for system in report.systems] == ["frozen cosine", "tuned cosine", "MoL"]
    assert [len(system.evaluations) for system in report.systems] == [1, 2, 2]
    assert (frozen.training_seconds, frozen.best_epochs, frozen.bytes_per_item) == (None, (), 4 * DIM)
    assert tuned.bytes_per_item == 4 * DIM
    assert mixture.bytes_per_item == 4 * (2 * DIM + 4)
    for system in report.systems:
        assert system.search_milliseconds is not None
        assert system.search_milliseconds > 0
        for name, value in system.metrics.items():
            assert system.intervals[name].low <= value <= system.intervals[name].high
            assert value == pytest.approx(
                sum(run.metrics[name] for run in system.evaluations) / len(system.evaluations)
            )
    assert tuned.training_seconds is not None
    assert tuned.training_seconds > 0
    assert [len(system.best_epochs) for system in (tuned, mixture)] == [2, 2]
    assert report.system("MoL") is mixture
    with pytest.raises(InvalidInputError, match="name is 'mol'; choose from: frozen cosine, tuned cosine, MoL"):
        report.system("mol")


def test_all_are_measured_on_the_same_queries(found: tuple[Comparison, Path], data: dict[str, torch.Tensor]) -> None:
    report, _ = found
    frozen = report.systems[0].evaluations[0]
    assert frozen.num_queries == 60
    assert report.protocol == frozen.protocol
    is_test = torch.isin(data["pairs"][:, 0], frozen.query_rows)
    again = evaluate(DotProduct(dim=DIM, cosine=True), *list(data.values())[:2], data["pairs"][is_test])
    assert torch.equal(again.ranks, frozen.ranks)


def test_every_difference(found: tuple[Comparison, Path]) -> None:
    report, _ = found
    names = [(pairing.first, pairing.second) for pairing in report.pairings]
    assert names == [("tuned cosine", "frozen cosine"), ("MoL", "frozen cosine"), ("MoL", "tuned cosine")]
    for pairing in report.pairings:
        first, second = report.system(pairing.first), report.system(pairing.second)
        assert pairing.difference.mean == pytest.approx(first.metrics["MRR"] - second.metrics["MRR"])
        assert pairing.difference.num_queries == 60


def test_reports(found: tuple[Comparison, Path], tmp_path: Path) -> None:
    report, _ = found
    stored = json.loads(json.dumps(report.to_dict()))
    assert stored["verdict"] == report.verdict
    assert [system["name"] for system in stored["systems"]] == ["frozen cosine", "tuned cosine", "MoL"]
    assert len(stored["systems"][2]["runs"]) == 2
    assert len(stored["differences"]) == 3
    text, markdown = str(report), report.to_markdown()
    for part in (report.verdict, report.protocol, *report.notes, f"{report.systems[0].metrics['MRR']:.3f}"):
        assert part in text
        assert part in markdown
    assert len({line.count("|") for line in markdown.splitlines() if line.startswith("|")}) == 1
    assert "tensor" not in repr(report)
    report.plot(tmp_path / "figures.png")
    assert (tmp_path / "figures.png").stat().st_size > 1000
    with pytest.raises(InvalidInputError, match=r"ends in '\.gif'"):
        report.plot(tmp_path / "figures.gif")


def test_the_same_call_resumes_and_models_are_kept(
    found: tuple[Comparison, Path], data: dict[str, torch.Tensor]
) -> None:
    report, folder = found
    assert sorted(path.name for path in folder.iterdir()) == [
        "mol-0", "mol-1", "tuned-cosine-0", "tuned-cosine-1",
    ]  # fmt: skip
    again = compare(**data, seeds=2, epochs=2, num_components=2, folder=folder, show_progress=False)
    for one, other in zip(again.systems, report.systems, strict=True):
        assert one.metrics == other.metrics
        assert one.training_seconds == other.training_seconds
    first = report.systems[2].evaluations[0]
    is_test = torch.isin(data["pairs"][:, 0], first.query_rows)
    kept = evaluate(load_similarity(folder / "mol-0" / "model"), *list(data.values())[:2], data["pairs"][is_test])
    assert torch.equal(kept.ranks, first.ranks)
    with pytest.raises(InvalidInputError, match="holds a run with"):
        compare(**data, seeds=2, epochs=2, num_components=3, folder=folder, show_progress=False)


def test_dot_products_and_given_parts(data: dict[str, torch.Tensor]) -> None:
    pairs = data["pairs"]
    report = compare(
        query_embeddings=data["query_embeddings"].numpy(),
        item_embeddings=data["item_embeddings"].double(),
        pairs=pairs[:200].tolist(),
        validation_pairs=pairs[200:230],
        test_pairs=pairs[230:],
        dot_product=True,
        seeds=1,
        epochs=1,
        num_components=2,
        show_progress=False,
    )
    assert [system.name for system in report.systems] == ["frozen dot product", "tuned dot product", "MoL"]
    assert report.systems[0].evaluations[0].query_rows.tolist() == list(range(230, 300))
    assert "another seed may turn out otherwise" in report.verdict


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": None}, "pairs is missing; give query_embeddings and item_embeddings and pairs"),
        (
            {"query_embeddings": None, "item_embeddings": None, "pairs": None},
            "there is nothing to compare; give query_embeddings",
        ),
        ({"query_embeddings": torch.randn(300, 7)}, "query_embeddings has 7 values per row but item_embeddings has 8"),
        ({"query_embeddings": torch.randn(300)}, r"query_embeddings has shape \(300,\)"),
        ({"item_embeddings": torch.full((60, 8), torch.nan)}, "item_embeddings has NaN"),
        ({"item_embeddings": torch.ones(60, 8, dtype=torch.int64)}, "give floating-point embeddings"),
        ({"pairs": [[0, 60]]}, "names item row 60"),
        ({"pairs": [[0, 0]] * 30}, "pairs names 1 different queries but 20 are needed"),
        ({"seeds": 0}, "seeds is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"num_components": 1}, "num_components is 1; ask for num_components >= 2"),
        ({"pairs": [[row, 3] for row in range(300)]}, "the training pairs name 1 item"),
        ({"recipe": 3}, "recipe was given but query_embeddings too"),
        ({"split_seed": -1}, "seed is -1"),
    ],
)
def test_wrong_input(data: dict[str, torch.Tensor], change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        compare(**(data | change))


def test_training_that_gains_nothing_is_noted(data: dict[str, torch.Tensor]) -> None:
    noise = torch.randint(NUM_ITEMS, (NUM_QUERIES,), generator=torch.Generator().manual_seed(1))
    pairs = data["pairs"].clone()
    pairs[60:, 1] = noise[60:]  # training pairs at random, validation pairs where the cosine is right
    report = compare(
        query_embeddings=data["item_embeddings"][data["pairs"][:, 1]],
        item_embeddings=data["item_embeddings"],
        pairs=pairs[60:],
        validation_pairs=data["pairs"][:30],
        test_pairs=data["pairs"][30:60],
        seeds=1,
        epochs=1,
        num_components=2,
        show_progress=False,
    )
    assert report.systems[2].best_epochs == (0,)
    assert "MoL: no epoch was better than the start on validation, in any run" in report.notes
    assert report.systems[0].metrics == report.systems[2].metrics
    assert report.choice == "frozen cosine"
