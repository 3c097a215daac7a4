"""An index that scans in int8 returns what the same index returns in full precision, through all changes."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch import Average, Combined, DotProduct, Index, SearchResult
from railsearch.errors import InvalidInputError
from railsearch.index import Flat, Precision
from railsearch.kernels import native
from tests.support.native import ISAS, forced, needs_native
from tests.support.search_worlds import WORLDS, check_result, fp64_scores, make_world, tolerance_of
from tests.support.trials import trials

STRATEGIES = (Average(7), Average(30), Combined(2, 20))


@settings(max_examples=trials(15, 150))
@given(
    kind=st.sampled_from(WORLDS),
    seed=st.integers(0, 2**31 - 1),
    num_items=st.integers(600, 1500),
    num_segments=st.integers(1, 3),
    num_removed=st.sampled_from([0, 200]),
    has_filters=st.booleans(),
    precision=st.sampled_from(Precision),
    isa=st.sampled_from(ISAS),
)
@needs_native
def test_results_and_certificates_are_those_of_full_precision(
    kind: str,
    seed: int,
    num_items: int,
    num_segments: int,
    num_removed: int,
    has_filters: bool,
    precision: Precision,
    isa: str,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    similarity, items, queries = make_world(kind, num_items, seed)
    ids = torch.randperm(5000, generator=generator)[:num_items]
    pieces = torch.arange(num_items).chunk(num_segments)
    exclude = allow = None
    visible = [set(ids[num_removed:].tolist()) for _ in range(3)]
    if has_filters:
        exclude = [ids[torch.rand(num_items, generator=generator) < 0.2] for _ in range(3)]
        allow = ids[torch.rand(num_items, generator=generator) < 0.8]
        visible = [(mine & set(allow.tolist())) - set(e.tolist()) for mine, e in zip(visible, exclude, strict=True)]
    results: dict[str, list[SearchResult]] = {}
    for scan in ("full", "int8"):
        with forced(isa):
            index = Index.build(similarity, items[pieces[0]], ids[pieces[0]], precision=precision, scan=scan)
            for piece in pieces[1:]:
                index.add(items[piece], ids[piece])
            index.remove(ids[:num_removed])
            results[scan] = [index.search(queries, 5, strategy, exclude, allow) for strategy in STRATEGIES]
    for full, int8 in zip(results["full"], results["int8"], strict=True):
        assert_same([int8], [full])
        truth = fp64_scores(index, queries, items, precision.dtype)
        check_result(int8, truth, ids, 5, visible, tolerance_of(kind))


def test_a_folder_keeps_the_setting_through_all_changes(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    items, queries = torch.randn(3000, 8, generator=generator), torch.randn(4, 8, generator=generator)
    full = Index.build(DotProduct(dim=8), items[:2000])
    index = Index.build(DotProduct(dim=8), items[:2000], path=tmp_path / "index", scan="int8")
    changes = (
        lambda each: None,
        lambda each: each.add(items[2000:]),
        lambda each: each.upsert(items[500:600], range(500)[:100]),
        lambda each: each.remove(range(1000, 1500)),
        lambda each: each.compact(),
    )
    for change in changes:
        change(full)
        change(index)
        opened = Index.open(tmp_path / "index")
        assert opened.describe()["engine"] == index.describe()["engine"] == "Flat(scan='int8')"
        for each in (index, opened):
            assert_same(
                [each.search(queries, 5, strategy) for strategy in STRATEGIES],
                [full.search(queries, 5, strategy) for strategy in STRATEGIES],
            )
    assert not (tmp_path / "index" / "tables").exists(), "an int8 copy is never stored"
    other = Index.open(tmp_path / "index", engine=Flat())
    assert other.describe()["engine"] == "Flat()"
    with Index.open(tmp_path / "index", kernel="torch") as slow:
        torch.testing.assert_close(slow.search(queries, 5, Average(30)).scores, full.search(queries, 5).scores)


@needs_native
def test_the_copy_is_made_once_by_the_first_search_or_by_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(native.Int8Table):
        def __init__(self, table: torch.Tensor) -> None:
            made.append(tuple(table.shape))
            super().__init__(table)

    monkeypatch.setattr(native, "Int8Table", Counted)
    similarity, items, queries = make_world("random", 700, 0)
    index = Index.build(similarity, items, scan="int8")
    index.search(queries, 5)
    assert not made, "brute force needs no scan"
    index.prepare_engine()
    index.prepare_engine()
    index.search(queries, 5, Average(10))
    assert made == [(700, 5)]
    index.search(queries, 5, Combined(2, 10))
    assert made == [(700, 5)], "components are read by the kernel itself"
    Index.build(similarity, items).search(queries, 5, Average(10))
    assert made == [(700, 5)]


def test_an_unknown_scan_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="scan is 'int4'; choose from: full, int8"):
        Index.build(DotProduct(dim=2), torch.eye(2), path=tmp_path / "index", scan="int4")
    assert not (tmp_path / "index").exists()


def test_more_results_than_items_and_none_left() -> None:
    index = Index.build(DotProduct(dim=2), torch.eye(2), scan="int8")
    assert index.search(torch.ones(1, 2), 2, Average(50)).ids.tolist() == [[0, 1]]
    assert index.search(torch.ones(1, 2), 2, Average(5), [[0, 1]], pad=True).ids.tolist() == [[-1, -1]]


def assert_same(found: Sequence[SearchResult], expected: Sequence[SearchResult]) -> None:
    for own, right in zip(found, expected, strict=True):
        assert torch.equal(own.ids, right.ids)
        assert torch.equal(own.scores.view(torch.int32), right.scores.view(torch.int32))
        assert torch.equal(own.ceiling, right.ceiling)
        assert torch.equal(own.num_scored, right.num_scored)
