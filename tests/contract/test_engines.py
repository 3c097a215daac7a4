"""Every engine compared with brute force: alone, and with every strategy and filter."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch import Adaptive, Average, BruteForce, Combined, DotProduct, Index, PerComponent, TwoPass, Weighted
from railsearch.errors import InvalidInputError, MissingExtraError
from railsearch.index.engines import Engine, Faiss, Flat
from railsearch.testing import check_engine
from tests.support.engines import AtMost, Complete
from tests.support.search_worlds import EXACT, WORLDS, check_result, fp64_scores, make_world, tolerance_of
from tests.support.trials import trials
from tests.support.worked_example import TableSimilarity, worked_example_table

ENGINES = [Flat(), Flat("int8"), Faiss(), Faiss("hnsw"), Faiss("ivf"), Faiss("sq8")]
EXACT_ENGINES = [*(engine for engine in ENGINES if engine.is_exact), Complete()]


@pytest.mark.parametrize("engine", [*ENGINES, AtMost(50), Complete()], ids=str)
def test_every_engine_keeps_the_contract(engine: Engine) -> None:
    check_engine(engine)


@settings(max_examples=trials(10, 80))
@given(
    kind=st.sampled_from(WORLDS),
    engine=st.sampled_from([*ENGINES[1:], AtMost(12), Complete()]),
    num_items=st.integers(1, 120),
    k=st.integers(1, 9),
    precision=st.sampled_from(["fp32", "fp16", "bf16"]),
    has_exclude=st.booleans(),
    has_allow=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
)
def test_certificates_hold_with_every_engine(
    kind: str, engine: Engine, num_items: int, k: int, precision: str, has_exclude: bool, has_allow: bool, seed: int
) -> None:
    similarity, items, queries = make_world(kind, num_items, seed)
    index = Index.build(similarity, items, precision=precision, engine=engine)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    truth, ids = fp64_scores(index, queries, items, dtype), torch.arange(num_items)
    generator = torch.Generator().manual_seed(seed)
    allow = torch.rand(num_items, generator=generator) < 0.6 if has_allow else None
    exclude = [torch.randint(num_items, (size,), generator=generator) for size in (0, 3, 20)] if has_exclude else None
    allowed = set(range(num_items)) if allow is None else set(ids[allow].tolist())
    visible = [allowed - set([] if exclude is None else exclude[query].tolist()) for query in range(3)]
    k = min(k, num_items)
    for strategy in (*EXACT, PerComponent(2), Average(k), Combined(1, k), PerComponent(9), Weighted(k)):
        result = index.search(queries, k, strategy, exclude, allow, pad=True)
        check_result(result, truth, ids, k, visible, tolerance_of(kind))
        if strategy in EXACT:
            assert bool(result.is_exact.all()), strategy


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("strategy", [PerComponent(2), Average(20), Combined(2, 20)], ids=str)
def test_only_exact_engines_certify(engine: Engine, strategy: PerComponent | Average | Combined) -> None:
    similarity, items, queries = make_world("random", 2000, seed=1)
    result = Index.build(similarity, items, engine=engine).search(queries, 5, strategy)
    assert bool((result.ceiling.isinf() != engine.is_exact).all())
    if not engine.is_exact:
        assert result.num_certified.tolist() == [0, 0, 0]


@pytest.mark.parametrize("engine", EXACT_ENGINES, ids=str)
@pytest.mark.parametrize(
    "strategy", [PerComponent(4), Average(50), Combined(4, 50), Weighted(50), TwoPass(), Adaptive()], ids=str
)
def test_exact_engines_choose_the_same_items(engine: Engine, strategy: PerComponent) -> None:
    similarity, items, queries = make_world("random", 3000, seed=2)
    expected = Index.build(similarity, items).search(queries, 10, strategy)
    found = Index.build(similarity, items, engine=engine).search(queries, 10, strategy)
    assert torch.equal(found.ids, expected.ids)
    # A full scan has the lowest ceiling, except where an engine without thresholds leads to scores of all items.
    assert bool((found.is_exact | (found.ceiling >= expected.ceiling - 1e-4)).all())
    assert torch.equal(found.is_exact, expected.is_exact)


def test_two_pass_by_threshold_skips_a_part_of_the_corpus() -> None:
    similarity, items, queries = make_world("sharp", 3000, seed=3)
    index = Index.build(similarity, items, engine=Faiss())
    found, expected = index.search(queries, 5, TwoPass()), index.search(queries, 5, BruteForce())
    assert torch.equal(found.ids, expected.ids)
    assert bool(found.is_exact.all())
    assert int(found.num_scored.min()) < 3000


def test_the_looser_bound_of_the_worked_example() -> None:
    query = torch.ones(1, 1)
    for engine, gap in ((AtMost(3), 0.3), (AtMost(2), 0.4)):  # with the third best row, and without it
        found = Index.build(TableSimilarity(), worked_example_table(), engine=engine).search(query, 2, PerComponent(2))
        assert found.ids.tolist() == [[0, 1]]
        assert float(found.gap) == pytest.approx(gap, abs=1e-5)


def test_a_limit_of_an_engine_is_kept() -> None:
    similarity, items, queries = make_world("random", 300, seed=0)
    index = Index.build(similarity, items, engine=AtMost(10))
    with pytest.raises(InvalidInputError, match=r"AtMost\(10\) returns at most 10 rows but 11 are needed"):
        index.search(queries, 5, PerComponent(11))
    with pytest.raises(InvalidInputError, match="returns at most 10 rows but 50 are needed"):
        index.search(queries, 5, Average(50))
    with pytest.raises(InvalidInputError, match="returns at most 10 rows but 50 are needed"):
        index.search(queries, 5, Combined(2, 50))
    assert bool(index.search(queries, 5, TwoPass()).is_exact.all())
    assert not bool(
        index.search(queries, 5, Average(10)).is_exact.any()
    )  # the engine cannot return an eleventh row, which would bound the others


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_more_effort_finds_more(kind: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    items, queries = torch.randn(3000, 24, generator=generator), torch.randn(30, 24, generator=generator)
    expected = Index.build(DotProduct(dim=24), items, path=tmp_path / "index").search(queries, 10)
    hits = []
    for effort in (1, 400):  # both search the same stored table
        found = Index.open(tmp_path / "index", engine=Faiss(kind, effort=effort)).search(queries, 10, Average(10))
        hits.append(int((found.scores >= expected.kth_score[:, None] - 1e-4).sum()))
    assert hits[0] < hits[1]
    assert hits[1] > 0.95 * expected.ids.numel()


def test_tune_keeps_the_limit_of_an_engine() -> None:
    similarity, items, _ = make_world("random", 600, seed=0)
    queries = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    index = Index.build(similarity, items, engine=AtMost(30))
    report = index.tune(queries, 5, target_recall=0.5)
    assert index.search(queries[:3], 5).ids.shape == (3, 5)
    assert any("Average" in str(row.strategy) for row in report.rows)


def test_a_tuned_strategy_belongs_to_its_engine(tmp_path: Path) -> None:
    similarity, items, _ = make_world("random", 200, seed=0)
    queries = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    Index.build(similarity, items, path=tmp_path / "index").tune(queries, 5, target_recall=0.2)
    other = Index.open(tmp_path / "index", engine=Faiss("hnsw"))
    assert bool(other.search(queries, 5).is_exact.all())  # nothing was tuned for this engine, so brute force is used


def test_wrong_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="kind is 'annoy'; choose from: flat, hnsw, ivf, sq8"):
        Faiss("annoy")
    with pytest.raises(InvalidInputError, match="effort is 0"):
        Faiss("ivf", effort=0)
    with pytest.raises(InvalidInputError, match=r"engine is 'faiss'; give an engine such as Flat\(\)"):
        Index.build(DotProduct(dim=2), torch.ones(2, 2), engine="faiss")
    with pytest.raises(InvalidInputError, match="give an engine"):
        Index.build(DotProduct(dim=2), torch.ones(2, 2), engine=Faiss)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(
        MissingExtraError, match=r"faiss is not installed; from a checkout .* pip install '\.\[faiss\]'"
    ):
        Index.build(DotProduct(dim=2), torch.ones(2, 2), engine=Faiss())
