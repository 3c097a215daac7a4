"""Searches and builds that need more memory than there is: refused before they start, and only then."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from railsearch import Adaptive, Average, BruteForce, Combined, Faiss, Flat, Index, PerComponent, TwoPass
from railsearch.benchmark.machine import measure_peak
from railsearch.errors import NotEnoughMemoryError
from railsearch.foundation import memory
from railsearch.foundation.results import ItemBatch, ItemBatches
from railsearch.index.engines import ScanPrecision
from railsearch.kernels import native
from tests.support.similarities import make_similarity

NUM_ITEMS = 5000
TRIES = 5
"""Measurements of a peak: the system may take pages of the process back during a search, which lowers a single one."""
QUERIES = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every byte, of which there are 100,000."""
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setenv(memory.VARIABLE, "100000")


@pytest.fixture(scope="module")
def items() -> torch.Tensor:
    return torch.randn(NUM_ITEMS, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def index(items: torch.Tensor) -> Index:
    return Index.build(make_similarity("mixture"), items)


@pytest.mark.parametrize(
    ("strategy", "k"),
    [(Adaptive(), 1), (BruteForce(), 1000), (Average(2000), 1), (PerComponent(200), 1), (Combined(200, 10), 1)],
    ids=str,
)
@pytest.mark.usefixtures("no_memory")
def test_a_search_is_refused(index: Index, strategy: object, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(index.contents.corpus.kernel), "top_k", lambda *_: pytest.fail("it began"))
    with pytest.raises(
        NotEnoughMemoryError,
        match=rf"a search of 40 queries with k = {k:,} among 5,000 items by {type(strategy).__name__}.* needs at least "
        r".* MiB of memory but 0 MiB are available; search fewer queries",
    ):
        index.search(QUERIES, k, strategy)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("strategy", [BruteForce(), Average(50), PerComponent(5), TwoPass()], ids=str)
def test_a_search_that_needs_little_is_not_refused(index: Index, strategy: object) -> None:
    assert index.search(QUERIES, 10, strategy).ids.shape == (40, 10)


@pytest.mark.skipif(not native.is_available(), reason="without the native kernels there are no int8 tables")
def test_an_int8_copy_counts_until_it_is_built(items: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.build(make_similarity("mixture"), items, engine=Flat(ScanPrecision.INT8))
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setenv(memory.VARIABLE, "15000")  # 5,000 rows of 4 bytes, and less for the lists
    with pytest.raises(NotEnoughMemoryError):
        index.search(QUERIES[:1], 5, Average(50))
    index.search(QUERIES[:1], 5, BruteForce())  # has no use for it
    monkeypatch.setenv(memory.VARIABLE, "20000")
    index.prepare_engine()
    monkeypatch.setenv(memory.VARIABLE, "15000")
    index.search(QUERIES[:1], 5, Average(50))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "sq8"])
def test_tables_of_faiss_count_until_they_are_built(
    items: torch.Tensor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    index = Index.build(make_similarity("mixture"), items[:1000], engine=Faiss(kind))
    corpus = index.contents.corpus
    copied = 4 * 1000 * (1 if kind == "sq8" else 4)  # components of 4 values
    expected = copied + (1000 * 2 * 32 * 4 if kind == "hnsw" else 0)
    assert corpus.engine_bytes() == expected
    assert corpus.engine_bytes(by_component=True) == 2 * expected
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setenv(memory.VARIABLE, "3000")
    for strategy in (Average(5), PerComponent(5), Combined(5, 5), TwoPass()):
        with pytest.raises(NotEnoughMemoryError):
            index.search(QUERIES[:1], 5, strategy)
    with pytest.raises(NotEnoughMemoryError, match=r"the set of tables of Faiss\(.* for 1,000 items needs at least"):
        index.prepare_engine()
    monkeypatch.setenv(memory.VARIABLE, str(3 * expected))
    index.prepare_engine()
    monkeypatch.setenv(memory.VARIABLE, "3000")
    assert corpus.engine_bytes() == corpus.engine_bytes(by_component=True) == 0
    index.search(QUERIES[:1], 5, Average(5))


@pytest.mark.usefixtures("no_memory")
def test_a_build_is_refused(items: torch.Tensor, tmp_path: Path) -> None:
    def batches() -> Iterator[ItemBatch]:
        pytest.fail("it began")
        yield

    with pytest.raises(NotEnoughMemoryError, match=r"5,000 items in memory needs .* build it in a folder"):
        Index.build(make_similarity("mixture"), items)
    with pytest.raises(NotEnoughMemoryError, match="an index of 9,000 items in a folder needs"):
        Index.build(make_similarity("mixture"), ItemBatches(batches(), 9000), path=tmp_path / "index")
    assert not (tmp_path / "index").exists()
    Index.build(make_similarity("mixture"), items[:500])


@pytest.mark.parametrize(
    ("strategy", "num_queries"), [(Adaptive(), 32), (Average(50_000), 32), (PerComponent(30_000), 4)], ids=str
)
def test_estimates_are_below_what_is_needed(strategy: object, num_queries: int) -> None:
    """A search takes at least as much memory as the guard asks for."""
    items = torch.randn(200_000, 6, generator=torch.Generator().manual_seed(0))
    index = Index.build(make_similarity("mixture"), items)
    needed = strategy.memory_needed(index.contents.corpus, num_queries, 1)
    assert needed > 2**23
    for _ in range(TRIES):
        _, peak = measure_peak(lambda: index.search(QUERIES[:num_queries], 1, strategy))
        if peak is None:
            pytest.skip("this system does not report the peak memory of a process")
        if peak > needed:
            return
    pytest.fail(f"the search needs {needed} bytes by the estimate, but took {peak} at most")
