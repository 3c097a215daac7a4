"""Tuning: the bound is valid as often as it claims, and the choice is the cheapest strategy that reaches the target."""

from types import SimpleNamespace

import pytest
import torch

from railsearch import BruteForce, Index, MixtureOfLogits, SearchResult
from railsearch.errors import InvalidInputError
from railsearch.index import searching
from railsearch.index.tuning import EXACT, lower_bound


@pytest.mark.parametrize("kind", ["rare misses", "half", "spread"])
def test_bound_is_wrong_no_more_often_than_it_says(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    error, num_wrong, num_trials = 0.1, 0, 120
    for _ in range(num_trials):
        uniform = torch.rand(80, generator=generator)
        values, mean = {
            "rare misses": ((uniform > 0.02).double(), 0.98),
            "half": ((uniform > 0.5).double(), 0.5),
            "spread": (0.9 + 0.1 * uniform.double(), 0.95),
        }[kind]
        num_wrong += lower_bound(values.tolist(), error) > mean
    assert num_wrong / num_trials <= error + 0.05


def test_bound_is_sharp_where_nothing_is_missed() -> None:
    assert lower_bound([1.0] * 500, 0.05 / 3) > 0.985
    assert lower_bound([1.0] * 20, 0.05) < 0.95
    assert lower_bound([0.0] * 50, 0.05) == 0.0
    assert lower_bound([], 0.05) == 0.0


def make_index(gate_inputs: list[str], num_items: int) -> tuple[Index, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(
        query_dim=8, item_dim=8, num_query_components=4, num_item_components=2, component_dim=8, gate_dim=128,
        gate_inputs=gate_inputs, seed=0,
    ).eval()  # fmt: skip
    items, queries = torch.randn(num_items, 8, generator=generator), torch.randn(600, 8, generator=generator)
    return Index.build(mol, items), queries


@pytest.fixture
def clock_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one scored item take one second, so that what is cheapest does not depend on the machine."""
    seconds = 0.0
    search = searching.search

    def counted(*arguments: object, **options: object) -> SearchResult:
        nonlocal seconds
        result = search(*arguments, **options)
        seconds += float(result.num_scored.sum())
        return result

    monkeypatch.setattr(searching, "search", counted)
    monkeypatch.setattr("railsearch.index.tuning.time", SimpleNamespace(perf_counter=lambda: seconds))


@pytest.mark.usefixtures("clock_of_work")
def test_chooses_a_strategy_that_keeps_its_promise() -> None:
    index, queries = make_index([], 4000)  # uniform weights: the average is the score
    report = index.tune(queries[:400], 5, target_recall=0.95)
    row = next(row for row in report.rows if row.strategy == report.chosen)
    assert row.guaranteed_recall >= 0.95
    assert not report.is_exact
    cheapest_exact = min(row.median_seconds for row in report.rows if row.strategy in EXACT)
    assert row.median_seconds < cheapest_exact
    fresh = queries[400:]
    expected, found = index.search(fresh, 5, BruteForce()), index.search(fresh, 5)
    assert bool((found.num_scored < 4000).all())  # the tuned strategy is used where none is named
    assert bool((index.search(fresh, 6).num_scored == 4000).all())  # but only for the k that it was tuned for
    recall = (found.scores >= expected.kth_score[:, None] - 1e-4).float().mean()
    assert float(recall) >= 0.95
    assert str(report.chosen) in str(report)


def test_says_plainly_when_only_an_exact_strategy_will_do() -> None:
    index, queries = make_index(["query", "item", "pair"], 300)
    report = index.tune(queries[:8], 5)  # four held-out queries prove nothing
    assert report.is_exact
    assert report.chosen in EXACT
    assert "exact; no cheaper strategy certainly reaches recall 0.99" in str(report)
    assert bool(index.search(queries, 5).is_exact.all())


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        (torch.zeros(10, 8), {"target_recall": 1.0}, "for a recall of 1, search with an exact strategy"),
        (torch.zeros(10, 8), {"target_recall": -1}, "target_recall is -1"),
        (torch.zeros(10, 8), {"confidence": 1.5}, "confidence is 1.5; give a number between 0 and 1"),
        (torch.zeros(3, 8), {}, "sample_queries holds 3 queries; give at least 4"),
        (torch.zeros(10, 7), {}, r"sample_queries has shape \(10, 7\)"),
        (torch.zeros(10, 8), {"k": 31}, "k is 31 but the index holds 30 items"),
        (torch.zeros(10, 8), {"k": 0}, "k is 0"),
    ],
)
def test_bad_tuning(queries: torch.Tensor, options: dict, message: str) -> None:
    index, _ = make_index([], 30)
    with pytest.raises(InvalidInputError, match=message):
        index.tune(queries, **{"k": 5, **options})
