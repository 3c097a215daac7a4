"""Bootstrap intervals: against a plain loop, against the normal law, and how often they cover the truth."""

import math
import random

import pytest
import torch

from railsearch.errors import InvalidInputError
from railsearch.evaluation import Difference, Evaluation, paired_difference
from railsearch.evaluation import intervals as module
from railsearch.evaluation.intervals import bootstrap_difference, bootstrap_intervals


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_interval(values: list[list[float]], num_resamples: int = 4000) -> tuple[float, float]:
    """Resample runs and queries in a plain loop."""
    chance = random.Random(5)
    means = []
    for _ in range(num_resamples):
        queries = chance.choices(range(len(values[0])), k=len(values[0]))
        runs = chance.choices(values, k=len(values))
        means.append(sum(run[query] for run in runs for query in queries) / len(runs) / len(queries))
    means.sort()
    return means[round(0.025 * num_resamples)], means[round(0.975 * num_resamples)]


@pytest.mark.parametrize("num_runs", [1, 3])
def test_against_a_plain_loop(num_runs: int) -> None:
    values = draw(num_runs, 1, 40, seed=num_runs) ** 3 + 0.05 * torch.arange(num_runs)[:, None, None]
    found = bootstrap_intervals(values)[0]
    low, high = naive_interval(values[:, 0].tolist())
    width = high - low
    assert found.low == pytest.approx(low, abs=0.06 * width)
    assert found.high == pytest.approx(high, abs=0.06 * width)


def test_many_queries_approach_the_normal_law() -> None:
    values = draw(2, 2000, seed=0) ** 2
    for own, interval in zip(values, bootstrap_intervals(values), strict=True):
        error = 1.96 * float(own.std()) / math.sqrt(2000)
        assert interval.low == pytest.approx(float(own.mean()) - error, abs=0.15 * error)
        assert interval.high == pytest.approx(float(own.mean()) + error, abs=0.15 * error)


def test_the_interval_covers_the_truth_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reciprocal ranks of 100 queries, 400 times over: their true mean is known."""
    monkeypatch.setattr(module, "NUM_RESAMPLES", 400)
    generator = torch.Generator().manual_seed(1)
    ranks = torch.multinomial(torch.ones(20), 400 * 100, replacement=True, generator=generator).view(400, 100) + 1
    truth = sum(1 / rank for rank in range(1, 21)) / 20
    found = [bootstrap_intervals(own.double().reciprocal()[None])[0] for own in ranks]
    assert 0.90 <= sum(interval.low <= truth <= interval.high for interval in found) / 400 <= 0.98


def test_the_difference_is_paired() -> None:
    """Queries differ by far more than the two systems do: only a paired interval sees the difference."""
    hardness = draw(200, seed=2)
    better, worse = hardness + 0.02 * draw(200, seed=3), hardness + 0.02 * draw(200, seed=4) - 0.01
    difference = bootstrap_difference(better, worse)
    gap = better - worse
    error = 1.96 * float(gap.std()) / math.sqrt(200)
    assert difference.mean == pytest.approx(float(gap.mean()))
    assert difference.margin == pytest.approx(error, rel=0.15)
    assert difference.is_clear
    apart = bootstrap_intervals(torch.stack([better, worse]))
    assert apart[0].low < apart[1].high  # unpaired, the two overlap
    mirrored = bootstrap_difference(worse, better)
    assert (mirrored.low, mirrored.high) == pytest.approx((-difference.high, -difference.low))


def test_a_difference_that_depends_on_the_seed_is_wide() -> None:
    base = draw(300, seed=5)
    lucky = torch.stack([base + 0.2, base - 0.05, base - 0.05])  # on average ahead, by luck of one run
    steady = torch.stack([base + 1 / 30] * 3)
    assert bootstrap_difference(steady, base).is_clear
    assert not bootstrap_difference(lucky, base).is_clear


@pytest.mark.parametrize(("num_better", "is_clear"), [(0, False), (3, False), (5, False), (6, True), (20, True)])
def test_few_different_queries_prove_nothing(num_better: int, is_clear: bool) -> None:
    first, second = torch.ones(500), torch.ones(500)
    second[:num_better] = 0.5
    difference = bootstrap_difference(first, second)
    assert difference.num_different == num_better
    assert difference.is_clear is is_clear


def test_equal_systems_are_seldom_called_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUM_RESAMPLES", 400)
    first, second = draw(400, 60, seed=6) ** 4, draw(400, 60, seed=7) ** 4
    found = [bootstrap_difference(*both) for both in zip(first, second, strict=True)]
    assert 0.01 <= sum(difference.is_clear for difference in found) / 400 <= 0.1


def test_repeatable_and_independent_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values, global_state = draw(3, 77, seed=8), torch.get_rng_state()
    found = bootstrap_intervals(values)
    assert bootstrap_intervals(values) == found
    assert bootstrap_intervals(values, seed=1) != found
    monkeypatch.setattr(module, "DRAWS_PER_BLOCK", 500)
    for one, other in zip(bootstrap_intervals(values), found, strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-12)
    assert torch.equal(torch.get_rng_state(), global_state)


def test_the_same_queries() -> None:
    with pytest.raises(InvalidInputError, match="first system has 3 queries but the second 4"):
        bootstrap_difference(torch.ones(3), torch.ones(4))


def evaluation(ranks: list[int], rows: list[int] | None = None) -> Evaluation:
    return Evaluation.of_ranks(
        ranks, cutoffs=[1, 10], protocol="", query_rows=None if rows is None else torch.tensor(rows)
    )


def test_the_difference_of_evaluations() -> None:
    first, second = evaluation([1, 2, 1, 11] * 5), evaluation([2, 2, 1, 10] * 5)
    assert paired_difference(first, second).mean == pytest.approx((1 - 0.5 + 1 / 11 - 0.1) / 4)
    by_hits = paired_difference([first], [second, second], metric="HR@10")
    assert by_hits == Difference(-0.25, by_hits.low, by_hits.high, num_queries=20, num_different=5)
    with pytest.raises(InvalidInputError, match="metric is 'HR@3'; choose from: HR@1, HR@10, MRR, NDCG@10"):
        paired_difference(first, second, metric="HR@3")
    with pytest.raises(InvalidInputError, match=r"different queries \(20, 2\)"):
        paired_difference(first, evaluation([1, 2]))
    with pytest.raises(InvalidInputError, match="different queries"):
        paired_difference(evaluation([1, 2], [0, 1]), evaluation([1, 2], [0, 3]))
    with pytest.raises(InvalidInputError, match="no evaluation"):
        paired_difference(first, [])
