"""Engines that keep a collection: the same answers as a scan, in step with the index, and nothing certified."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from railsearch import Average, Combined, Faiss, Index, MixtureOfLogits, PerComponent, TwoPass, Weighted
from railsearch.engines import sync_engine
from railsearch.errors import EngineError, InvalidInputError
from railsearch.index import syncing
from railsearch.testing import check_engine
from tests.support.remembered import Remembered

ENGINE = Remembered("items")
STRATEGIES = [Average(60), PerComponent(4), Combined(3, 40), Weighted(60)]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    Remembered.held.clear()
    Remembered.writes_left.clear()
    Remembered.searches.clear()


@pytest.fixture
def similarity() -> MixtureOfLogits:
    return MixtureOfLogits(
        query_dim=8, item_dim=8, num_query_components=3, num_item_components=2, component_dim=4, gate_dim=4, seed=0
    )


@pytest.fixture
def items(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(300, 8, generator=generator)


@pytest.fixture
def folder(tmp_path: Path, similarity: MixtureOfLogits, items: torch.Tensor) -> Path:
    """An index with several segments, replaced items and removed ones."""
    path = tmp_path / "items.index"
    index = Index.build(similarity, items[:200], path=path)
    index.add(items[200:], ids=torch.arange(1000, 1100))
    index.upsert(items[:5] + 1.0, ids=torch.arange(5))
    index.remove([7, 8, 1003])
    return path


def test_the_engine_keeps_the_contract() -> None:
    check_engine(ENGINE)
    assert not Remembered.held, "the test left its collection behind"
    Remembered("taken").connect().create(4, "somebody's")
    with pytest.raises(AssertionError, match="exists; name one that does not"):
        check_engine(Remembered("taken"))
    assert "taken" in Remembered.held


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_candidates_are_those_of_a_scan(folder: Path, strategy: Average, generator: torch.Generator) -> None:
    plain = Index.open(folder)
    sync_engine(plain, ENGINE)
    index = Index.open(folder, engine=ENGINE)
    queries = torch.randn(9, 8, generator=generator)
    allow = index.ids[::3]
    exclude = [plain.search(queries[:1], 5).ids[0]] * 9
    for options in ({}, {"allow": allow}, {"exclude": exclude}, {"allow": allow, "exclude": exclude}):
        found = index.search(queries, 5, strategy, **options)
        expected = plain.search(queries, 5, strategy, **options)
        assert torch.equal(found.ids, expected.ids)
        assert torch.equal(found.scores, expected.scores)
        assert not found.is_exact.any()
        assert bool((found.ceiling == torch.inf).all())
    assert index.search(queries, 5, TwoPass()).is_exact.all()


def test_filters_become_ids_or_more_rows(folder: Path, generator: torch.Generator) -> None:
    plain = Index.open(folder)
    small = Remembered("items", max_filter_ids=50)
    sync_engine(plain, small)
    index = Index.open(folder, engine=small)
    queries = torch.randn(2, 8, generator=generator)
    cases = [(index.ids[:20], "only"), (index.ids[20:], "without"), (index.ids[::2], "more")]
    for allow, form in cases:
        Remembered.searches.clear()
        found = index.search(queries, 5, Average(10), allow=allow)
        assert torch.isin(found.ids, allow).all()
        asked, only, without = Remembered.searches[0]
        assert (only is not None, without is not None) == (form == "only", form == "without")
        assert (asked > 20) == (form == "more")


def test_a_sync_writes_only_what_changed(folder: Path, items: torch.Tensor) -> None:
    index = Index.open(folder)
    first = sync_engine(index, ENGINE)
    assert (first.num_written, first.num_removed, first.num_items) == (297, 0, 297)
    assert sync_engine(index, ENGINE).num_written == 0
    index.compact()
    again = sync_engine(index, ENGINE)
    assert (again.num_written, again.num_removed, again.version) == (0, 0, index.version)
    index.upsert(items[:2] - 1.0, ids=[4, 5000])
    index.remove([1000, 9])
    changed = sync_engine(index, ENGINE)
    assert (changed.num_written, changed.num_removed, changed.num_unchanged) == (2, 2, 294)
    assert sorted(Remembered.held["items"].items) == index.ids.tolist()


def test_removing_every_item_empties_the_collection(folder: Path) -> None:
    index = Index.open(folder)
    sync_engine(index, ENGINE)
    index.remove(index.ids)
    assert sync_engine(index, ENGINE).num_removed == 297
    assert not Remembered.held["items"].items
    Index.open(folder, engine=ENGINE).close()


def test_a_sync_goes_on_after_an_interruption(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "ITEMS_PER_RANGE", 40)
    index = Index.open(folder)
    Remembered.writes_left[:] = [3]
    with pytest.raises(EngineError, match="went away"):
        sync_engine(index, ENGINE)
    with pytest.raises(EngineError, match=r"left by a sync to version 4 that has not finished; bring it up to date"):
        Index.open(folder, engine=ENGINE)
    Remembered.writes_left.clear()
    report = sync_engine(index, ENGINE)
    assert (report.num_written, report.num_unchanged) == (177, 120)
    assert sorted(Remembered.held["items"].items) == index.ids.tolist()
    Index.open(folder, engine=ENGINE).close()


def test_a_collection_that_is_not_in_step_is_named(
    folder: Path, tmp_path: Path, similarity: MixtureOfLogits, items: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Index.open(folder)
    with pytest.raises(EngineError, match=r"collection 'items' in memory does not exist; bring it up to date with"):
        Index.open(folder, engine=ENGINE)
    sync_engine(plain, ENGINE)
    index = Index.open(folder, engine=ENGINE)
    index.add(items[:1], ids=[5001])
    message = "holds version 4 of this index but version 5 is open"
    with pytest.raises(EngineError, match=message):
        index.search(items[:1], 3, Average(10))
    patient = Index.open(folder, engine=Remembered("items", behind="allow"))
    patient.search(items[:1], 3, Average(10))
    patient.search(items[:1], 3, Average(10))
    assert [message in record.getMessage() for record in caplog.records] == [True]
    sync_engine(index, ENGINE)
    index.search(items[:1], 3, Average(10))
    other = Index.build(similarity, items, path=tmp_path / "other.index")
    with pytest.raises(EngineError, match="holds another index"):
        sync_engine(other, ENGINE)
    with pytest.raises(EngineError, match="holds another index"):
        Index.open(tmp_path / "other.index", engine=Remembered("items", behind="allow"))
    Remembered.held["items"].dim = 9
    with pytest.raises(EngineError, match=r"has vectors of 9 values .* but the index has 8"):
        Index.open(folder, engine=ENGINE)
    Remembered.held["items"].note = "{}"
    with pytest.raises(EngineError, match="railsearch did not write it"):
        sync_engine(plain, ENGINE)


def test_string_ids_survive_compaction(tmp_path: Path, similarity: MixtureOfLogits, items: torch.Tensor) -> None:
    path = tmp_path / "shop.index"
    index = Index.build(similarity, items, ids=[f"sku-{row}" for row in range(300)], path=path)
    index.remove(["sku-3"])
    sync_engine(index, ENGINE)
    index.compact()
    assert sync_engine(index, ENGINE).num_written == 0
    searched = Index.open(path, engine=ENGINE)
    assert searched.search(items[:4], 2, Average(20)).keys == index.search(items[:4], 2, Average(20)).keys


def test_tuning_needs_no_sync(folder: Path, items: torch.Tensor) -> None:
    sync_engine(Index.open(folder), ENGINE)
    index = Index.open(folder, engine=ENGINE)
    index.tune(items[:40], 3, target_recall=0.9, show_progress=False)
    assert index.version == 5
    index.search(items[:1], 3, Average(10))


def test_what_cannot_be_synced_is_refused(folder: Path, similarity: MixtureOfLogits, items: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match="in memory only"):
        sync_engine(Index.build(similarity, items), ENGINE)
    with pytest.raises(InvalidInputError, match=r"Faiss\('flat'\), which keeps no collection"):
        sync_engine(Index.open(folder), Faiss())
    with pytest.raises(InvalidInputError, match="build the folder without an engine"):
        Index.build(similarity, items, engine=ENGINE)
    with pytest.raises(EngineError, match="builds no tables"):
        ENGINE.build("name", items)
