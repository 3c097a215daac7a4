"""The benchmark: what it reports can be checked by hand, and its exact contenders agree."""

import json
import math
from pathlib import Path

import pytest
import torch

from railsearch import Adaptive, Average, BruteForce, DotProduct, Index, MixtureOfLogits, TwoPass
from railsearch.benchmark import (
    NaiveBruteForce,
    benchmark_shape,
    check_plot,
    machine,
    measure_scaling,
    naive,
    run_benchmark,
    scale_shape,
)
from railsearch.benchmark import run as module
from railsearch.benchmark.hit_rates import relative_hit_rates
from railsearch.data import Shape, make_shape
from railsearch.errors import InvalidInputError, MissingExtraError, NotEnoughItemsError
from tests.support.similarities import KINDS, make_similarity


@pytest.fixture(scope="module")
def shape() -> Shape:
    return make_shape("ml-20m", num_items=600, num_queries=8)


@pytest.fixture(scope="module")
def index(shape: Shape) -> Index:
    return Index.build(shape.similarity, shape.item_embeddings)


def test_report(shape: Shape, index: Index) -> None:
    report = run_benchmark(
        index,
        shape.query_components,
        k=50,
        strategies=[TwoPass(), Adaptive(), Average(60), BruteForce(), Average(600)],
        batch_sizes=(4, 1),
        repeats=3,
        naive=NaiveBruteForce(shape.similarity, shape.item_embeddings),
    )
    names = [row.name for row in report.rows]
    assert names == ["BruteForce", "naive BruteForce", "TwoPass", "Adaptive", "Average(60)", "Average(600)"]
    for name in set(names) - {"Average(60)"}:
        row = report.row(name)
        assert row.hit_rates == {1: 1.0, 5: 1.0, 10: 1.0, 50: 1.0}, name
        assert (row.share_exact, row.mean_gap) == (1.0, 0.0)
    average = report.row("Average(60)")
    assert average.num_scored == 60
    assert average.share_exact == 0.0
    assert average.hit_rates[50] < 1.0
    assert average.mean_gap > 0.0
    for row in report.rows:
        assert [latency.batch_size for latency in row.latencies] == [4, 1]
        for latency in row.latencies:
            assert 0 < latency.fastest_seconds <= latency.median_seconds <= latency.p95_seconds
        assert list(row.stage_seconds) == ["first_stage", "scoring", "selection", "other"]
        assert row.stage_seconds["scoring"] > 0
        assert row.peak_bytes is None or row.peak_bytes >= 0
    assert [latency.speed_up for latency in report.rows[0].latencies] == [1.0, 1.0]
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert kept["rows"][0]["hit_rates"]["50"] == 1.0
    assert kept["num_items"] == 600
    assert kept["machine"]["num_threads"] == torch.get_num_threads()


def test_every_repeat_takes_the_next_batch(shape: Shape, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts calls shows warm-up and order: every contender has its turn in every round."""
    order: list[tuple[str, float]] = []
    original = module._measure

    def watch(contender: module._Contender, batch: torch.Tensor, size: int, *, has_stages: bool) -> None:
        order.append((contender.name, float(batch[0, 0, 0])))
        original(contender, batch, size, has_stages=has_stages)

    monkeypatch.setattr(module, "_measure", watch)
    queries = shape.query_components
    run_benchmark(index, queries, k=5, strategies=[Average(50)], batch_sizes=[3], repeats=3)
    first, second = float(queries[0, 0, 0]), float(queries[3, 0, 0])
    names = ["BruteForce", "Average(50)"]
    assert order == [(name, value) for value in (first, second, first) for name in names]


def test_hit_rates_by_hand() -> None:
    truth = torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0], [9.0, 8.0, 8.0, 8.0, 8.0]])
    found = torch.tensor([[8.0, 7.0, 6.0, 5.0, 4.0], [9.0, 8.0, 8.0, 8.0, 7.9]])
    assert relative_hit_rates(found, truth) == {1: 0.5, 5: 0.8}
    assert relative_hit_rates(truth - 1e-6, truth) == {1: 1.0, 5: 1.0}  # rounding is no miss
    assert relative_hit_rates(truth[:, :1], truth[:, :1]) == {1: 1.0}


def test_what_is_infinite_is_none_in_json() -> None:
    class Uncertain(DotProduct):
        is_certifiable = False

    vectors = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    report = run_benchmark(
        Index.build(Uncertain(dim=4), vectors),
        vectors[:2],
        k=3,
        strategies=[Average(5)],
        batch_sizes=[2],
        repeats=1,
    )
    assert math.isinf(report.row("Average(5)").mean_gap)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["rows"][1]["mean_gap"] is None


@pytest.mark.parametrize("name", ["ml-20m", "books", "nq320k"])
def test_naive_equals_brute_force(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naive, "PAIRS_PER_PIECE", 1000)
    shape = make_shape(name, num_items=700, num_queries=34)
    expected = Index.build(shape.similarity, shape.item_embeddings).search(shape.query_components, 20)
    found = NaiveBruteForce(shape.similarity, shape.item_embeddings).search(shape.query_components, 20)
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    assert float((found.ids == expected.ids).float().mean()) > 0.98  # near ties may change places
    assert bool(found.is_exact.all())
    parts = shape.similarity.query_parts(shape.query_components)
    from_parts = NaiveBruteForce(shape.similarity, shape.item_embeddings).search(parts, 20)
    assert torch.equal(from_parts.ids, found.ids)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("mixture")])
def test_naive_knows_every_gate(kind: str, generator: torch.Generator) -> None:
    similarity = make_similarity(kind)
    assert isinstance(similarity, MixtureOfLogits)
    items, queries = torch.randn(50, 6, generator=generator), torch.randn(3, 6, generator=generator)
    expected = Index.build(similarity, items).search(queries, 5)
    found = NaiveBruteForce(similarity, items).search(queries, 5)
    assert torch.equal(found.ids, expected.ids)
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)


def test_parts_as_queries(shape: Shape, index: Index) -> None:
    parts = shape.similarity.query_parts(shape.query_components)
    report = run_benchmark(index, parts, k=5, strategies=[], batch_sizes=[8], repeats=1)
    assert [row.name for row in report.rows] == ["BruteForce"]


def test_peak_memory_is_seen() -> None:
    def work() -> int:
        return int(torch.ones(2**24).sum())  # 64 MiB

    result, peak = machine.measure_peak(work)
    assert result == 2**24
    assert peak is None or 48 * 2**20 < peak < 128 * 2**20  # pages may be taken back meanwhile


def test_peak_memory_is_unknown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert machine.measure_peak(lambda: 7) == (7, None)


def test_work_elsewhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([100.0, 103.0])
    monkeypatch.setattr(machine, "_other_cpu_seconds", lambda: next(seconds))
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    with machine.watch_others() as busy_elsewhere:
        pass
    assert busy_elsewhere() == 1.5


def test_own_work_and_idle_time_are_not_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "cpu  100 10 50 900 5 1 2 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    monkeypatch.setattr(machine.os, "sysconf", lambda _: 100)
    monkeypatch.setattr(machine.time, "process_time", lambda: 0.5)
    assert machine._other_cpu_seconds() == pytest.approx(1.7 - 0.5)


def test_scaling(shape: Shape) -> None:
    report = measure_scaling(
        shape.similarity,
        shape.item_embeddings,
        shape.query_components,
        sizes=[300, 600],
        strategy=Average(50),
        k=10,
        repeats=2,
    )
    assert [row.num_items for row in report.rows] == [300, 600]
    assert all(row.scan_seconds > 0 and row.rest_seconds > 0 for row in report.rows)
    assert report.growth[0] == 2.0
    assert json.loads(json.dumps(report.to_dict()))["strategy"] == "Average(50)"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 700}, NotEnoughItemsError, "k is 700 but the index holds 600 items; ask for k <= 600"),
        ({"repeats": 0}, InvalidInputError, "repeats is 0"),
        ({"batch_sizes": []}, InvalidInputError, "batch_sizes is empty"),
        ({"batch_sizes": [32]}, InvalidInputError, "8 queries but a batch of 32 .* give 32 or more"),
        ({"strategies": [Average(50)]}, InvalidInputError, r"k is 100 but Average\(50\)"),
        ({"strategies": ["Average"]}, InvalidInputError, "strategy is 'Average'"),
    ],
)
def test_bad_runs_are_refused_before_any_work(
    shape: Shape, index: Index, options: dict, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr(module, "measure_peak", refuse)
    with pytest.raises(error, match=message):
        run_benchmark(index, shape.query_components, **{"batch_sizes": [8], **options})


def test_naive_needs_the_same_items(shape: Shape, index: Index) -> None:
    other = NaiveBruteForce(shape.similarity, shape.item_embeddings[:5])
    with pytest.raises(InvalidInputError, match="naive has 5 items but the index holds 600"):
        run_benchmark(index, shape.query_components, batch_sizes=[8], naive=other)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("movies", {}, "shape is 'movies'; choose from: ml-20m, books, nq320k"),
        ("books", {"num_items": 50}, "k is 100 but the index holds 50 items"),
        ("books", {"strategies": [Average(5)]}, r"k is 100 but Average\(5\)"),
        ("books", {"num_queries": 3}, "3 queries but a batch of 32"),
    ],
)
def test_bad_shapes_are_refused_before_they_are_made(
    name: str, options: dict, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = module.make_shape

    def small_only(*args: object, num_items: int | None, **options: object) -> Shape:
        assert num_items == 100, "the world was made"
        return original(*args, num_items=num_items, **options)

    monkeypatch.setattr(module, "make_shape", small_only)
    with pytest.raises(InvalidInputError, match=message):
        benchmark_shape(name, **options)


def test_scaling_needs_room_to_grow() -> None:
    with pytest.raises(InvalidInputError, match="num_items is 5000 but corpora grow from 24186"):
        scale_shape("books", num_items=5000)


@pytest.mark.parametrize(
    ("path", "message"),
    [("picture.docx", "ends in '.docx'; give a file that ends in .png"), ("absent/picture.png", "there is no folder")],
)
def test_plot_is_refused_early(path: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InvalidInputError, match=message):
        check_plot(tmp_path / path)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InvalidInputError, match="cannot be written"):
        check_plot(tmp_path / "folder.png")


def test_plot_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"matplotlib is not installed; from a .* pip install '\.\[plot\]'"):
        check_plot(tmp_path / "picture.png")
    assert issubclass(MissingExtraError, ImportError)
