"""The simulation of a sharded search, where its results are known in closed form."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "scale_simulation.py"
QUIET = 1e-4
"""Searches per second at which no request ever waits for another."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_simulation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_simulation"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_sizes_by_hand(script: ModuleType) -> None:
    sizes = script.Sizes(1e9, 1e7, query_components=8, item_components=4, dim=64, bytes_per_value=2)
    assert sizes.num_shards == 100
    assert sizes.bytes_per_item == 4 * 64 * 2 + 32 * 2 + 64 * 4 + 8 == 840  # 8.4 GB for 10 million, as measured
    assert sizes.bytes_per_query == 8 * 64 * 4 + 32 * 4
    assert sizes.bytes_per_answer(100) == 1204


@pytest.mark.parametrize("num_shards", [1, 10, 100])
def test_the_slowest_of_many_exponential_times(script: ModuleType, num_shards: int) -> None:
    """The mean is that of one, times 1 + 1/2 + ... + 1/n, and a quantile q is -ln(1 - q ** (1 / n))."""
    replica = script.Replica(service=10.0, jitter=1.0, straggler_share=0.0, straggler_factor=1.0)
    found = script.simulate(num_shards=num_shards, num_replicas=1, replica=replica, rate=QUIET, num_searches=4000)
    assert found.searches.mean() == pytest.approx(10 * script.harmonic(num_shards), rel=0.06)
    for share in (0.5, 0.99):
        assert found.quantile(share) == pytest.approx(-10 * math.log(1 - share ** (1 / num_shards)), rel=0.1)
    assert found.extra_share == 0


def test_two_requests_at_once_halve_exponential_times(script: ModuleType) -> None:
    """The lesser of two exponential times is exponential with half the mean."""
    replica = script.Replica(service=10.0, jitter=1.0, straggler_share=0.0, straggler_factor=1.0)
    found = script.simulate(
        num_shards=20, num_replicas=2, replica=replica, rate=QUIET, num_searches=4000, hedge_after=0.0
    )
    assert found.searches.mean() == pytest.approx(5 * script.harmonic(20), rel=0.04)
    assert found.extra_share == 1


def test_a_hedge_bounds_the_stragglers(script: ModuleType) -> None:
    """A request of 10 ms straggles to 100 ms with probability 0.1; hedged after 20 ms, it takes 30 ms, or 100 ms.

    It takes 100 ms only if the hedged one straggles too: with probability 0.01 for one shard.
    """
    replica = script.Replica(service=10.0, jitter=0.0, straggler_share=0.1, straggler_factor=10.0)
    assert replica.mean == pytest.approx(19.0)
    found = script.simulate(
        num_shards=5, num_replicas=2, replica=replica, rate=QUIET, num_searches=4000, hedge_after=20.0
    )
    assert set(found.searches.round(3).tolist()) == {10.0, 30.0, 100.0}
    assert (found.searches > 99.9).mean() == pytest.approx(1 - 0.99**5, rel=0.25)
    assert (found.searches < 10.1).mean() == pytest.approx(0.9**5, rel=0.05)
    assert found.extra_share == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_queues(script: ModuleType, jitter: float) -> None:
    """One replica is an M/M/1 or an M/D/1 queue: the mean wait is rho / (1 - rho) services, or half of that."""
    replica = script.Replica(service=10.0, jitter=jitter, straggler_share=0.0, straggler_factor=1.0)
    found = script.simulate(num_shards=1, num_replicas=1, replica=replica, rate=60.0, num_searches=20_000)
    assert found.utilisation == pytest.approx(0.6, rel=0.03)
    wait = 10 * 0.6 / 0.4 * (1.0 if jitter else 0.5)
    assert found.searches.mean() == pytest.approx(10 + wait, rel=0.1)


def test_the_idle_replica_waits_less(script: ModuleType) -> None:
    replica = script.Replica(service=10.0, jitter=0.5, straggler_share=0.01, straggler_factor=5.0)
    same = {"num_shards": 4, "num_replicas": 2, "replica": replica, "rate": 100.0, "num_searches": 4000}
    random, idle = (script.simulate(**same, routing=routing) for routing in ("random", "idle"))
    assert idle.quantile(0.99) < random.quantile(0.99)


def test_it_prints_a_table(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["--items", "2e8", "--items-per-shard", "5e7", "--searches", "200"])
    out = capsys.readouterr().out
    assert "| shards | 4 |" in out
    assert out.count("\n| 2 | ") == 3
    assert "p99.9 ms" in out
