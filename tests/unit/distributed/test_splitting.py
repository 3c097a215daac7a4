"""Splitting an index and building a split one: balance, bounded pieces, restarts, and what comes along."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Average, DotProduct, Index, ItemBatch
from railsearch.distributed import ShardedIndex, build_shards, shard_index
from railsearch.distributed.layout import read_manifest, shard_name
from railsearch.errors import IndexFolderError, InvalidInputError
from railsearch.index import building
from railsearch.index.tuned import TunedStrategy
from tests.support.native import needs_native
from tests.support.split_worlds import numbered, same_bits

ITEMS = torch.randn(300, 6, generator=torch.Generator().manual_seed(5))
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
KEYS = [f"k{number * 7 % 300}" for number in range(300)]


class Killed(BaseException):
    """Stands for a kill."""


def births(path: Path) -> list[str]:
    return [read_manifest(folder).birth for folder in sorted(path.glob("shard-*"))]


@needs_native
def test_everything_comes_along(tmp_path: Path) -> None:
    one = Index.build(
        DotProduct(dim=6), ITEMS, KEYS, path=tmp_path / "one.index", metadata=numbered(300), precision="fp16",
        scan="int8", source={"kind": "test"},
    )  # fmt: skip
    one.remove(KEYS[:3])
    one.contents.remember(7, TunedStrategy(Average(50)))
    split = ShardedIndex.open(shard_index(tmp_path / "one.index", tmp_path / "shards", 4))
    counts = [len(Index.open(split.path / shard_name(number))) for number in range(4)]
    assert sum(counts) == len(split) == 297
    assert min(counts) > 50  # the hash balances them
    shard = Index.open(split.path / shard_name(2))
    assert (shard.source, shard.fingerprint) == ({"kind": "test"}, one.fingerprint)
    assert shard.describe()["engine"] == one.describe()["engine"]
    assert shard.describe()["tuned"] == one.describe()["tuned"]
    assert split.describe()["precision"] == "fp16"
    assert int(split.search(QUERIES, 7).num_scored[0]) == 200  # tuned: 50 in each shard
    assert split.search(QUERIES, 9).to_frame().equals(one.search(QUERIES, 9).to_frame())
    assert split.source == {"kind": "test"}
    assert "297 items in 4 shards" in repr(split)
    assert Index.open(tmp_path / "one.index").version == 3  # the index itself is not changed


@needs_native
def test_more_shards_than_items_and_small_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "SEGMENT_BYTES", 4 * 12 * 5)  # 5 rows each
    one = Index.build(DotProduct(dim=6), ITEMS[:23], path=tmp_path / "one.index", metadata=numbered(23))
    split = ShardedIndex.open(shard_index(one, tmp_path / "shards", 2))
    assert int(str(split.describe()["segments"])) >= 5
    assert split.search(QUERIES, 23).to_frame().equals(one.search(QUERIES, 23).to_frame())
    few = Index.build(DotProduct(dim=6), ITEMS[:5], path=tmp_path / "few.index", metadata=numbered(5))
    many = ShardedIndex.open(shard_index(few, tmp_path / "many", 7))
    assert many.search(QUERIES, 5).to_frame().equals(few.search(QUERIES, 5).to_frame())
    many.add(ITEMS[5:9], metadata=numbered(4, 5))
    assert len(many) == 9
    many.remove(many.ids)
    assert len(many) == 0


@needs_native
def test_a_split_that_was_killed_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Index.build(DotProduct(dim=6), ITEMS, path=tmp_path / "one.index")
    target, module = tmp_path / "shards", "railsearch.distributed.splitting.write_shard"
    with monkeypatch.context() as patch:
        from railsearch.distributed import splitting

        real = splitting.write_shard

        def write(path: Path, number: int, *rest: object) -> None:
            if number == 2:
                raise Killed
            real(path, number, *rest)  # type: ignore[arg-type]

        patch.setattr(module, write)
        with pytest.raises(Killed):
            shard_index(one, target, 4)
    with pytest.raises(IndexFolderError, match=r"shards\.json does not exist"):
        ShardedIndex.open(target)
    kept = births(target)
    assert len(kept) == 2
    with pytest.raises(InvalidInputError, match="unfinished split of something else"):
        shard_index(one, target, 5)
    file = next((target / "shard-00001" / "segments").iterdir())
    file.write_bytes(file.read_bytes()[:-1])  # damaged meanwhile
    split = ShardedIndex.open(shard_index(one, target, 4))
    assert births(target)[0] == kept[0]
    assert births(target)[1] != kept[1]
    assert torch.equal(split.search(QUERIES, 300).ids, one.search(QUERIES, 300).ids)
    with pytest.raises(InvalidInputError, match="already holds a split index"):
        shard_index(one, target, 4)


@needs_native
@pytest.mark.parametrize("ids", [None, "integers", "strings"])
def test_a_split_built_from_a_stream_is_that_of_one_index(ids: str | None, tmp_path: Path) -> None:
    given = {None: None, "integers": list(range(900, 0, -3)), "strings": KEYS}[ids]
    columns = numbered(300)

    def stream() -> Iterator[ItemBatch]:
        for first in range(0, 300, 70):
            rows = slice(first, first + 70)
            yield ItemBatch(ITEMS[rows], None if given is None else given[rows], columns[rows])

    one = Index.build(DotProduct(dim=6), stream(), path=tmp_path / "one.index", precision="bf16")
    path = build_shards(DotProduct(dim=6), stream, tmp_path / "shards", 3, precision="bf16", source={"from": "test"})
    split = ShardedIndex.open(path)
    expected, found = one.search(QUERIES, 300), split.search(QUERIES, 300)
    assert torch.equal(found.ids, expected.ids)
    assert same_bits(found.scores, expected.scores)
    assert found.to_frame().equals(expected.to_frame())
    assert split.source == {"from": "test"}
    more = None if ids is None else [5000, 5001] if ids == "integers" else ["new", "k1000"]
    for index in (one, split):
        index.add(ITEMS[:2], more, metadata=columns[:2])
    assert split.search(QUERIES, 302).to_frame().equals(one.search(QUERIES, 302).to_frame())


def test_a_build_runs_its_jobs_where_it_is_told_and_continues_by_name(tmp_path: Path) -> None:
    num_read = 0

    def stream() -> Iterable[ItemBatch]:
        nonlocal num_read
        num_read += 1
        return [ItemBatch(ITEMS[:2], ["a", "b"])]

    def run_some(jobs: Iterable[Callable[[], None]]) -> None:
        for job in list(jobs)[:3]:
            job()
        raise Killed

    with pytest.raises(Killed):
        build_shards(DotProduct(dim=6), stream, tmp_path / "shards", 5, name="two items", run=run_some)
    kept = births(tmp_path / "shards")
    assert num_read == len(kept) == 3
    path = build_shards(DotProduct(dim=6), stream, tmp_path / "shards", 5, name="two items")
    assert (births(path)[:3], num_read) == (kept, 5)
    assert (
        ShardedIndex.open(path).search(QUERIES, 2).keys
        == Index.build(DotProduct(dim=6), ITEMS[:2], ["a", "b"]).search(QUERIES, 2).keys
    )
    with pytest.raises(InvalidInputError, match="shard 0 was not built"):
        build_shards(DotProduct(dim=6), stream, tmp_path / "other", 2, run=lambda jobs: None)


def test_wrong_streams_are_refused(tmp_path: Path) -> None:
    similarity = DotProduct(dim=6)
    mixed = [ItemBatch(ITEMS[:2], [1, 2]), ItemBatch(ITEMS[2:4])]
    twice = [ItemBatch(ITEMS[:1], [1]), ItemBatch(ITEMS[2:3], [1])]
    for batches, message in ((mixed, "differs in having ids"), (twice, "id 1"), ([], "holds no batch")):
        with pytest.raises(InvalidInputError, match=message):
            build_shards(similarity, lambda own=batches: own, tmp_path / message[:4], 2)  # type: ignore[misc]
    with pytest.raises(InvalidInputError, match="fp99"):
        build_shards(similarity, lambda: mixed, tmp_path / "precision", 2, precision="fp99")


def test_wrong_arguments_are_refused_before_any_work(tmp_path: Path) -> None:
    frame = pl.DataFrame({"price": [1.5, 2.5]})
    one = Index.build(DotProduct(dim=6), ITEMS[:2], path=tmp_path / "one.index", metadata=frame)
    target = tmp_path / "shards"
    for num_shards, message in ((0, "num_shards"), (10_001, "at most 10000"), (2.5, "num_shards")):
        with pytest.raises(InvalidInputError, match=message):
            shard_index(one, target, num_shards)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'genre', which is not a column of the metadata; choose from: price"):
        shard_index(one, target, 2, by="genre")
    with pytest.raises(InvalidInputError, match="choose one of text"):
        shard_index(one, target, 2, by="price")
    with pytest.raises(InvalidInputError, match="in memory only"):
        shard_index(Index.build(DotProduct(dim=6), ITEMS[:2]), target, 2)
    with pytest.raises(IndexFolderError, match="does not exist"):
        shard_index(tmp_path / "nothing", target, 2)
    assert not target.exists()
    target.mkdir()
    (target / "mine.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="holds other files"):
        shard_index(one, target, 2)
    assert [path.name for path in target.iterdir()] == ["mine.txt"]
