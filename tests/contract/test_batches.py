"""Items in batches: the same index as from one array, in bounded memory, and bad batches are refused."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from railsearch import DotProduct, Index, ItemBatch
from railsearch.data import read_items
from railsearch.errors import InvalidInputError

ITEMS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
QUERIES = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=["memory", "disk", "disk, small segments"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    if "small" in request.param:
        monkeypatch.setattr("railsearch.index.building.SEGMENT_BYTES", 4 * 8 * 7)  # seven rows
        monkeypatch.setattr("railsearch.index.changes.SMALL", 0)
    return None if request.param == "memory" else tmp_path / "index"


def batches(size: int, **more: object) -> Iterator[ItemBatch]:
    return (
        ItemBatch(ITEMS[first : first + size], torch.arange(first, min(first + size, 50)), **more)
        for first in range(0, 50, size)
    )


@pytest.mark.parametrize("size", [1, 7, 13, 50, 99])
def test_batches_give_the_same_index_as_an_array(path: Path | None, size: int) -> None:
    expected = Index.build(DotProduct(dim=4), ITEMS).search(QUERIES, 9)
    index = Index.build(DotProduct(dim=4), batches(size), path=path)
    assert torch.equal(index.search(QUERIES, 9).ids, expected.ids)
    assert torch.equal(index.ids, torch.arange(50))
    if path is None:
        assert index.num_segments == 1
    added = Index.build(DotProduct(dim=4), ITEMS[:3], path=None if path is None else path.with_name("other"))
    added.upsert(batches(size))
    assert torch.equal(added.search(QUERIES, 9).ids, expected.ids)
    listed = Index.build(DotProduct(dim=4), list(batches(size)))
    assert torch.equal(listed.search(QUERIES, 9).ids, expected.ids)


def test_repeated_ids_are_found_wherever_they_are(path: Path | None) -> None:
    def twice(first: int, second: int) -> Iterator[ItemBatch]:
        yield ItemBatch(ITEMS[:9], [first, *range(100, 108)])
        yield ItemBatch(ITEMS[:9], [second, *range(200, 208)])

    with pytest.raises(InvalidInputError, match=r"id 9 (is given more than once|is already in the index)"):
        Index.build(DotProduct(dim=4), twice(9, 9), path=path)
    assert path is None or not path.exists()
    index = Index.build(DotProduct(dim=4), ITEMS[:3], path=path)
    for change in (index.add, index.upsert):
        with pytest.raises(InvalidInputError, match=r"id 9 (is given more than once|is already in the index)"):
            change(twice(9, 9))
        assert index.ids.tolist() == [0, 1, 2]
    index.add(twice(9, 10))
    assert len(index) == 21


def test_columns_in_another_order_are_put_right(path: Path | None) -> None:
    table = pl.DataFrame({"title": list("abc"), "year": [1, 2, 3]})

    def turned() -> Iterator[ItemBatch]:
        yield ItemBatch(ITEMS[:3], metadata=table)
        yield ItemBatch(ITEMS[3:6], metadata=table.select("year", "title"))

    index = Index.build(DotProduct(dim=4), turned(), path=path)
    index.add(ITEMS[6:9], metadata=table.select("year", "title"))
    assert index.metadata.columns == ["title", "year"]
    assert index.metadata["title"].to_list() == list("abc") * 3
    index.compact()
    assert index.search(QUERIES, 2, allow="year = 2").to_frame()["title"].to_list() == ["b"] * 6


def test_a_buffer_may_be_used_again(path: Path | None) -> None:
    def refilled() -> Iterator[ItemBatch]:
        buffer = np.empty((5, 4), dtype=np.float32)
        for first in range(0, 50, 5):
            buffer[:] = ITEMS[first : first + 5].numpy()
            yield ItemBatch(buffer)

    index = Index.build(DotProduct(dim=4), refilled(), path=path)
    assert torch.equal(index.search(QUERIES, 50).ids, Index.build(DotProduct(dim=4), ITEMS).search(QUERIES, 50).ids)


def test_batches_are_let_go_of(tmp_path: Path) -> None:
    alive: list[weakref.ref[np.ndarray]] = []
    most_alive = 0

    def tracked() -> Iterator[ItemBatch]:
        nonlocal most_alive
        for _ in range(6):
            array = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
            alive.append(weakref.ref(array))
            yield ItemBatch(array)
            del array
            gc.collect()
            most_alive = max(most_alive, sum(reference() is not None for reference in alive))

    Index.build(DotProduct(dim=4), tracked(), path=tmp_path / "index")
    assert most_alive <= 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: iter([]), "items holds no batch"),
        (lambda: iter([ItemBatch(ITEMS), 5]), "batch 1 of items is a int; give ItemBatch objects"),
        (lambda: iter([ItemBatch(ITEMS[:2]), ItemBatch(ITEMS[:2], [5, 6])]), "batch 1 of items differs in having ids"),
        (
            lambda: iter([ItemBatch(ITEMS[:2]), ItemBatch(ITEMS[:, :3])]),
            "batch 1 of items, from row 2 on: items has shape",
        ),
        (lambda: [ItemBatch(ITEMS[:2]), ItemBatch(ITEMS[:0])], "batch 1 of items, from row 2 on: items holds 0 rows"),
    ],
)
def test_wrong_batches_change_nothing(path: Path | None, given: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Index.build(DotProduct(dim=4), given(), path=path)
    assert path is None or not path.exists()
    index = Index.build(DotProduct(dim=4), ITEMS[:1], path=path)
    with pytest.raises(InvalidInputError, match=message):
        index.add(given())
    assert (len(index), index.version) == (1, 1)


def test_upsert_needs_ids() -> None:
    index = Index.build(DotProduct(dim=4), ITEMS)
    for items in (ITEMS, ITEMS.tolist(), ItemBatch(ITEMS), iter([ItemBatch(ITEMS)])):
        with pytest.raises(InvalidInputError, match="ids is missing; give the ids of the items to replace, or use add"):
            index.upsert(items)
    assert len(index) == 50


def test_no_room_for_more_ids() -> None:
    index = Index.build(DotProduct(dim=4), ITEMS[:1], [2**63 - 1])
    with pytest.raises(InvalidInputError, match="do not fit into int64"):
        index.add(ITEMS[:1])


def test_files_say_how_much_is_to_come(tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", ITEMS.numpy())
    pl.DataFrame({"embedding": ITEMS.numpy()}).write_parquet(tmp_path / "items.parquet")
    for file in ("items.npy", "items.parquet"):
        found = read_items(tmp_path / file, batch_size=8)
        assert found.num_items == 50
        assert len(Index.build(DotProduct(dim=4), found)) == 50
