"""Changes to a split index: owners, numbering, snapshots, and half-done changes that are abandoned."""

import threading
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import DotProduct, Index, ItemBatch
from railsearch.distributed import Call, LocalWorkers, ShardedIndex, Workers, shard_index
from railsearch.distributed.assignment import shards_of_ids
from railsearch.distributed.snapshots import find_snapshots
from railsearch.errors import IdExistsError, IndexFolderError, IndexLockedError, InvalidInputError, ShardLostError
from railsearch.index.storage.lock import WriterLock
from tests.support.native import needs_native
from tests.support.split_worlds import Forgetful, make_split, numbered
from tests.support.trials import IS_FULL, trials

ITEMS = torch.randn(40, 6, generator=torch.Generator().manual_seed(5))
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))


class Killed(BaseException):
    """Stands for a kill: nothing in the package catches it."""


class Deadly:
    """Workers that die before the n-th change of a shard."""

    def __init__(self, workers: Workers, num_changes: int) -> None:
        self._workers = workers
        self.num_left = num_changes

    def ask(self, calls: Sequence[Call]) -> list[object]:
        return [self._run(call) for call in calls]

    def close(self) -> None:
        self._workers.close()

    def _run(self, call: Call) -> object:
        if call.method in ("put", "remove", "compact"):
            if self.num_left == 0:
                raise Killed
            self.num_left -= 1
        return self._workers.ask([call])[0]


def contents(index: ShardedIndex) -> dict[int, list[float]]:
    """Return the scores of all items, by id."""
    result = index.search(QUERIES, len(index))
    order = result.ids.argsort(dim=1)
    scores = result.scores.gather(1, order)
    return dict(zip(result.ids[0].sort().values.tolist(), scores.T.tolist(), strict=True))


@needs_native
def test_items_go_to_the_shards_that_own_them(tmp_path: Path) -> None:
    split = make_split(tmp_path, 4)
    one = Index.open(tmp_path / "one.index")
    for index in (one, split):
        index.add(ITEMS[:10], metadata=numbered(10, 60))  # ids are omitted
        index.add(ITEMS[10:12], [1000, 500], metadata=numbered(2))
        index.upsert(ITEMS[12:20], [0, 1, 2, 3, 1000, 70, 2000, 2001], metadata=numbered(8, 100))
        index.remove([5, 6, 7, 2001])
    assert (split.version, len(split)) == (5, len(one))
    assert torch.equal(split.ids, one.ids)
    for number in range(4):
        own = Index.open(split.path / f"shard-{number:05d}").ids
        assert shards_of_ids(own, 4).tolist() == [number] * len(own)
    expected, found = one.search(QUERIES, len(one)), split.search(QUERIES, len(one))
    assert torch.equal(found.ids, expected.ids)
    assert found.to_frame().equals(expected.to_frame())
    split.compact()
    assert split.describe()["removed"] == 0
    assert torch.equal(split.search(QUERIES, 9).ids, expected.ids[:, :9])
    assert len(find_snapshots(split.path)) == 3


@needs_native
def test_string_ids_are_numbered_across_shards(tmp_path: Path) -> None:
    same = ITEMS[:1].expand(40, 6)  # every score is a tie
    keys = [f"k{number * 7 % 40}" for number in range(40)]
    one = Index.build(DotProduct(dim=6), same[:20], keys[:20], path=tmp_path / "one.index")
    split = ShardedIndex.open(shard_index(one, tmp_path / "shards", 3))
    for index in (one, split):
        index.add([ItemBatch(same[20:25], keys[20:25]), ItemBatch(same[25:30], keys[25:30])])
        index.remove([keys[3], keys[22]])
        index.upsert(same[:10], [*keys[30:35], *keys[:3], keys[3], keys[4]])
    assert split.search(QUERIES, 34).keys == one.search(QUERIES, 34).keys
    assert split.find([keys[22], keys[0]]).tolist() == [-1, 0]


@needs_native
def test_a_column_can_decide_and_items_move_when_it_changes(tmp_path: Path) -> None:
    split = make_split(tmp_path, 3, by="genre")
    one = Index.open(tmp_path / "one.index")
    for index in (one, split):
        index.upsert(ITEMS[:10], list(range(10)), metadata=numbered(10, 3))
        index.add(ITEMS[10:20], metadata=numbered(10))
        index.remove([11, 12])
    assert len(split) == len(one) == 68
    result = split.search(QUERIES, 68)
    assert torch.equal(result.ids, one.search(QUERIES, 68).ids)
    genres = [
        {row["genre"] for row in Index.open(split.path / f"shard-{number:05d}").metadata.to_dicts()}  # type: ignore[union-attr]
        for number in range(3)
    ]
    assert sum(map(len, genres)) == 5
    with pytest.raises(IdExistsError, match="id 10 is already in the index"):
        split.add(ITEMS[:1], [10], metadata=numbered(1, 2))
    with pytest.raises(InvalidInputError, match="'genre', which is not a column"):
        split.add(ITEMS[:1], [999], metadata=pl.DataFrame({"year": [1]}))


def test_wrong_changes_leave_everything_as_it_was(tmp_path: Path) -> None:
    split = make_split(tmp_path, 4)
    before = contents(split)
    new = numbered(2)
    with pytest.raises(IdExistsError, match="use upsert"):
        split.add(ITEMS[:2], [777, 3], metadata=new)
    with pytest.raises(InvalidInputError, match="id 999 is not in the index"):
        split.remove([1, 999])
    with pytest.raises(InvalidInputError, match="more than once"):
        split.upsert([ItemBatch(ITEMS[:2], [7, 8], new), ItemBatch(ITEMS[:2], [9, 7], new)])
    with pytest.raises(InvalidInputError, match="ids of this index are integers"):
        split.add(ITEMS[:2], ["a", "b"], metadata=new)
    with pytest.raises(InvalidInputError, match="ids is missing"):
        split.upsert(ITEMS[:2], metadata=new)
    with pytest.raises(InvalidInputError, match="metadata has no columns"):
        split.add(ITEMS[:2], [777, 778])
    with pytest.raises(InvalidInputError, match="items"):
        split.add(ITEMS[:2, :5], [777, 778], metadata=new)
    with pytest.raises(InvalidInputError, match="put them into the batches"):
        split.add([ItemBatch(ITEMS[:2], [1, 2])], [1, 2])
    with WriterLock(split.path).held("test"), pytest.raises(IndexLockedError, match="is being changed"):
        split.remove([1])
    split.remove([999], missing_ok=True)
    assert split.version == 1
    assert contents(split) == before
    split.add(ITEMS[:2], [777, 778], metadata=new)
    assert len(split) == 62


@pytest.mark.parametrize("kind", ["add", "upsert", "remove", "compact"] if IS_FULL else ["add", "remove"])
def test_a_change_that_is_killed_between_shards_is_abandoned(kind: str, tmp_path: Path) -> None:
    split = make_split(tmp_path, 3)
    before = contents(split)
    ids = list(range(100, 116)) if kind == "add" else list(range(16))

    def change(index: ShardedIndex) -> None:
        if kind == "compact":
            index.compact()
        elif kind == "remove":
            index.remove(ids)
        else:
            (index.add if kind == "add" else index.upsert)(ITEMS[:16], ids, metadata=numbered(16))

    for num_changes in (0, 1, 2, 2, 1) if IS_FULL else (2, 1):  # several kills, one after the other
        victim = ShardedIndex.open(split.path, workers=Deadly(split.workers, num_changes))
        with pytest.raises(Killed):
            change(victim)
        assert split.refresh() is False
        with ShardedIndex.open(split.path) as reader:  # a new process finds every version that it needs
            assert reader.version == 1
            assert contents(reader) == before
    change(split)
    with ShardedIndex.open(split.path) as reader:
        assert reader.version == 2
        assert sorted(contents(reader)) == sorted({*before} - {*ids} if kind == "remove" else {*before, *ids})
        assert all(Index.check(split.path / f"shard-{number:05d}").is_intact for number in range(3))


def test_readers_move_from_snapshot_to_snapshot(tmp_path: Path) -> None:
    split = make_split(tmp_path, 3)
    reader, pinned = ShardedIndex.open(split.path), ShardedIndex.open(split.path, version=1)
    before = contents(reader)
    for number in range(6):
        split.upsert(ITEMS[:9], list(range(9)), metadata=numbered(9, number))
    assert contents(reader) == before  # its versions are open, so that cleanup has kept them
    with pytest.raises(IndexFolderError, match=r"version 1 was opened but the newest is 7"):
        pinned.remove([1])
    assert reader.refresh()
    assert reader.version == 7
    assert contents(reader) == contents(split) != before
    assert not reader.refresh()
    pinned.refresh()
    pinned.remove([1])
    assert len(pinned) == 59
    with pytest.raises(IndexFolderError, match=r"snapshots in this folder: 6, 7, 8"):
        ShardedIndex.open(split.path, version=2)


def test_a_change_that_loses_a_shard_is_not_acknowledged(tmp_path: Path) -> None:
    split = make_split(tmp_path, 3)
    assert isinstance(split.workers, LocalWorkers)
    unlucky = ShardedIndex.open(split.path, workers=Forgetful(split.workers, {2}, method="put"))
    with pytest.raises(ShardLostError, match="first shard 2"):
        unlucky.upsert(ITEMS[:20], list(range(20)), metadata=numbered(20))
    assert split.refresh() is False
    split.upsert(ITEMS[:20], list(range(20)), metadata=numbered(20))
    assert split.version == 2


class Recording:
    """Workers that write down which calls they were asked."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.calls: list[Call] = []

    def ask(self, calls: Sequence[Call]) -> list[object]:
        self.calls.extend(calls)
        return self._workers.ask(calls)

    def close(self) -> None:
        self._workers.close()


def test_a_write_that_arrives_late_does_not_undo_what_was_acknowledged(tmp_path: Path) -> None:
    """A process that was taken for dead may still run a change that another replica has finished."""
    recording = Recording(make_split(tmp_path, 3).workers)
    split = ShardedIndex.open(tmp_path / "shards", workers=recording)
    split.upsert(ITEMS[:20], list(range(20)), metadata=numbered(20))
    late = [call for call in recording.calls if call.method == "put"]
    split.remove([0, 1, 2, 3, 4])
    before = contents(split)
    elsewhere = ShardedIndex.open(split.path).workers
    for call in late:
        with pytest.raises(IndexFolderError, match=r"snapshot 1 but \[3\] is the newest: it comes too late"):
            elsewhere.ask([call])
    assert contents(ShardedIndex.open(split.path)) == before


def test_a_reader_never_sees_a_mixture_of_snapshots(tmp_path: Path) -> None:
    """Every change gives all items of all shards the same score; so an answer has one score, that of its snapshot."""
    ids = list(range(12))
    one = Index.build(DotProduct(dim=6), torch.full((12, 6), 1.0), ids, path=tmp_path / "one.index")
    path = shard_index(one, tmp_path / "shards", 3)
    writer, reader = ShardedIndex.open(path), ShardedIndex.open(path)
    num_changes = trials(6, 100)

    def write() -> None:
        for number in range(2, 2 + num_changes):
            writer.upsert(torch.full((12, 6), float(number)), ids)

    thread = threading.Thread(target=write)
    thread.start()
    versions = set()
    while thread.is_alive() or reader.version < 1 + num_changes:
        reader.refresh()
        scores = reader.search(torch.ones(1, 6), 12).scores
        assert scores.unique().tolist() == [6.0 * reader.version]
        versions.add(reader.version)
    thread.join()
    assert 1 + num_changes in versions
