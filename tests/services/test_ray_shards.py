"""Shards on a real Ray cluster: the answers of one index, bit for bit, while actors and nodes are killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Adaptive, Average, BruteForce, Combined, Index, PerComponent, TwoPass
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.distributed.layout import Layout
from railsearch.distributed.ray_workers import RayWorkers
from railsearch.distributed.starting import shard_places
from railsearch.errors import ClusterError, IndexFolderError, InvalidInputError, ShardLostError
from tests.support.ray_clusters import PATIENCE, RayNodes, ray_nodes, wait_until
from tests.support.served import DIM, make_index, serving

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("default"),  # of Ray
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed; `make services` installs it"),
]
NUM_SHARDS, REPLICAS = 2, 2
KEY = "k" * 40
STRATEGIES = (BruteForce(), TwoPass(), Adaptive(), Average(50), PerComponent(20), Combined(10, 40))
EXACT = (BruteForce(), TwoPass(), Adaptive())
QUERIES = torch.randn(8, DIM, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_nodes(2) as started:
        yield started


@pytest.fixture
def both(nodes: RayNodes) -> RayNodes:
    """Return a cluster with two nodes, whatever a test before has killed."""
    wait_until(lambda: not nodes.all_actors())  # those of the test before may need a moment to end
    if not nodes.others():
        nodes.add()
    return nodes


@pytest.fixture
def whole(tmp_path: Path) -> Index:
    return make_index(tmp_path / "movies.index", 400)


@pytest.fixture
def split(both: RayNodes, whole: Index, tmp_path: Path) -> Iterator[ShardedIndex]:
    """Return the index as two shards with two replicas each, which are patient: the machine may be busy."""
    folder = shard_index(whole.path, tmp_path / "shards", NUM_SHARDS, show_progress=False)
    workers = RayWorkers.start(
        shard_places(folder, Layout.read(folder)), replicas=REPLICAS, address=both.address, deadline_seconds=PATIENCE
    )
    with ShardedIndex.open(folder, workers=workers) as index:
        yield index


def workers_of(index: ShardedIndex) -> RayWorkers:
    assert isinstance(index.workers, RayWorkers)
    return index.workers


def test_answers_are_those_of_one_index(both: RayNodes, whole: Index, tmp_path: Path) -> None:
    folder = shard_index(whole.path, tmp_path / "shards", 3, show_progress=False)
    year = [item for item in range(400) if (1950 + item % 70) >= 2000]
    with ShardedIndex.open(folder, workers="ray", replicas=1, address=both.address) as index:
        for allow, exclude in ((None, None), ("year >= 2000", None), (year, [[1, 2, 3]] * 8)):
            for strategy in EXACT:
                mine = index.search(QUERIES, 10, strategy, exclude, allow)
                one = whole.search(QUERIES, 10, strategy, exclude, allow)
                assert torch.equal(mine.ids, one.ids)
                assert torch.equal(mine.scores, one.scores)
                assert bool(mine.is_exact.all())
                assert mine.coverage == 1
        for strategy in STRATEGIES:
            mine, local = index.search(QUERIES, 10, strategy), ShardedIndex.open(folder).search(QUERIES, 10, strategy)
            assert torch.equal(mine.ids, local.ids)
            assert torch.equal(mine.scores, local.scores)
            assert torch.equal(mine.ceiling, local.ceiling)
        assert index.search(QUERIES[:1], 3).to_frame()["title"].to_list() == (
            whole.search(QUERIES[:1], 3).to_frame()["title"].to_list()
        )
        with pytest.raises(InvalidInputError, match="k is 500 but the index holds 400 items"):
            index.search(QUERIES, 500)
        with pytest.raises(InvalidInputError, match="colour"):  # raised by a shard, in its process
            index.search(QUERIES, 5, allow="colour = 'red'")
        assert workers_of(index).num_retried == 0


class Writer(threading.Thread):
    """Upserts batches one after the other, each until it is acknowledged."""

    def __init__(self, index: ShardedIndex, batches: torch.Tensor) -> None:
        super().__init__()
        self._index = ShardedIndex.open(index.path, workers=index.workers)
        self._batches = batches
        self.acknowledged: list[int] = []
        self.num_refused = 0
        self._end = time.monotonic() + PATIENCE

    def run(self) -> None:
        for number, batch in enumerate(self._batches):
            while True:
                try:
                    upsert(self._index, number, batch)
                except (ShardLostError, IndexFolderError):
                    self.num_refused += 1
                    assert time.monotonic() < self._end
                    time.sleep(0.2)
                else:
                    break
            self.acknowledged.extend(ids_of(number, len(batch)))
            time.sleep(0.2)


def test_kills_in_the_middle_of_searches(
    both: RayNodes, split: ShardedIndex, whole: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kill an actor and then a raylet in 200 searches, while items are written: nothing is wrong, nothing is lost."""
    batches = torch.randn(12, 5, DIM, generator=torch.Generator().manual_seed(4))
    truth = [[whole.search(QUERIES, 10, strategy) for strategy in EXACT]]
    for number, batch in enumerate(batches):  # version v of the split holds v - 1 batches
        upsert(whole, number, batch)
        truth.append([whole.search(QUERIES, 10, strategy) for strategy in EXACT])
    workers, victim = workers_of(split), both.others()[0]
    writer = Writer(split, batches)
    writer.start()
    num_right = num_wrong = num_refused = 0
    kills = {50: lambda: os.kill(both.actors(victim)[0], signal.SIGKILL), 120: lambda: both.kill_raylet(victim)}
    end = time.monotonic() + PATIENCE
    while num_right + num_wrong < 200:
        kills.pop(num_right, lambda: None)()  # once, even if the search is refused
        which = num_right % len(EXACT)
        try:
            split.refresh()
            result = split.search(QUERIES, 10, EXACT[which])
        except (ShardLostError, IndexFolderError):
            num_refused += 1
            assert time.monotonic() < end
            time.sleep(0.05)
            continue
        expected = truth[split.version - 1][which]
        is_same = torch.equal(result.ids, expected.ids) and torch.equal(result.scores, expected.scores)
        num_right, num_wrong = num_right + is_same, num_wrong + (not is_same)
    writer.join()
    split.refresh()
    num_lost = int((split.find(writer.acknowledged) < 0).sum())
    with capsys.disabled():
        print(
            f"\n{num_right} searches right, {num_wrong} wrong; {len(writer.acknowledged)} items acknowledged, "
            f"{num_lost} lost; {workers.num_retried} calls retried, {workers.num_hedged} asked twice; "
            f"{num_refused} searches and {writer.num_refused} writes refused"
        )
    assert (num_wrong, num_lost, len(writer.acknowledged)) == (0, 0, batches.shape[0] * batches.shape[1])
    assert workers.num_retried + workers.num_hedged > 0
    wait_until(lambda: workers.num_away == 0)
    assert torch.equal(split.search(QUERIES, 10).ids, truth[-1][0].ids)


def test_a_shard_without_replicas_is_refused_or_left_out(both: RayNodes, split: ShardedIndex, whole: Index) -> None:
    """Its actors come back, but do not serve before their folder is there and intact."""
    workers = workers_of(split)
    before = split.search(QUERIES, 5)
    folder = split.path / "shard-00001"
    folder.rename(split.path / "elsewhere")
    for pid in both.all_actors():
        os.kill(pid, signal.SIGKILL)
    workers._deadline_seconds = 2.0

    def has_settled() -> bool:
        """Search, so that each loss is noticed; return whether shard 1 is away and shard 0 is back."""
        with pytest.raises(ShardLostError, match="partial='allow'"):
            split.search(QUERIES, 5)
        presence = workers._presence
        return presence.all_away_since(1) is not None and len(presence.of_shard(0)) == REPLICAS

    wait_until(has_settled)
    workers._deadline_seconds = PATIENCE
    for replica in workers._presence._since:  # shard 1 has been away for long, and shard 0 may take its time
        workers._presence._since[replica] -= PATIENCE
    with pytest.raises(ShardLostError, match="1 of the shards did not answer, first shard 1 "):
        split.search(QUERIES, 5)
    partial = split.search(QUERIES, 5, partial="allow")
    assert 0.3 < partial.coverage < 0.7
    assert not bool(partial.is_exact.any())
    assert bool((partial.ceiling == torch.inf).all())
    alone = Index.open(split.path / "shard-00000").search(QUERIES, 5)
    assert torch.equal(partial.ids, alone.ids)
    (split.path / "elsewhere").rename(folder)
    wait_until(lambda: workers.num_away == 0)
    after = split.search(QUERIES, 5)
    assert after.coverage == 1
    assert torch.equal(after.ids, before.ids)
    assert torch.equal(after.scores, before.scores)


def test_a_server_in_front_of_actors(both: RayNodes, whole: Index, tmp_path: Path) -> None:
    folder = shard_index(whole.path, tmp_path / "movies", NUM_SHARDS, show_progress=False)
    expected = whole.search(QUERIES, 5)
    arguments = (folder, "--ray", "--address", both.address, "--replicas", REPLICAS, "--writable")
    with serving(*arguments, environment={"RAILSEARCH_WRITE_KEYS": KEY}) as server:
        victims = both.all_actors()
        body = {"embeddings": QUERIES.tolist(), "k": 5, "fields": ["title"]}
        for turn in range(2):
            answer = server.ask("POST", "/v1/indexes/movies/search", body, key=KEY).json
            ids = [[hit["id"] for hit in found["hits"]] for found in answer["results"]]
            assert ids == expected.ids.tolist()
            assert answer["results"][0]["hits"][0]["fields"] == {"title": f"Title {ids[0][0]}"}
            assert all(found["is_exact"] for found in answer["results"])
            assert answer["coverage"] == 1
            if not turn:
                os.kill(victims[0], signal.SIGKILL)
        assert server.ask("GET", "/v1/indexes/movies", key=KEY).json["shards"] == NUM_SHARDS
        new = {"ids": [5000], "embeddings": QUERIES[:1].tolist(), "metadata": [{"title": "New", "year": 2020}]}
        assert server.ask("PUT", "/v1/indexes/movies/items", new, key=KEY).json == {"version": 2, "items": 401}
        assert server.ask("GET", "/v1/indexes/movies/items/5000", key=KEY).json["fields"]["title"] == "New"
        assert server.stop() == 0


def test_a_cluster_without_room_is_refused(
    both: RayNodes, whole: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from railsearch.distributed import ray_cluster

    monkeypatch.setattr(ray_cluster, "START_SECONDS", 3.0)
    folder = shard_index(whole.path, tmp_path / "shards", 2, show_progress=False)
    with pytest.raises(ClusterError, match=r"no room for 2 workers: they need 200 CPUs .* and it has \d+ CPUs"):
        RayWorkers.start(shard_places(folder, Layout.read(folder)), address=both.address, cpus=100)


def ids_of(number: int, size: int) -> list[int]:
    return list(range(1000 + number * size, 1000 + (number + 1) * size))


def upsert(index: Index | ShardedIndex, number: int, batch: torch.Tensor) -> None:
    table = pl.DataFrame({"title": ["New"] * len(batch), "year": [2020] * len(batch)})
    index.upsert(batch, ids_of(number, len(batch)), metadata=table, show_progress=False)
