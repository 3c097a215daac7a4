"""Retries of calls: replicas that vanish, refuse, or are slow, and that come back. The cluster is in this process."""

import itertools
import time
from collections.abc import Callable, Sequence

import pytest

from railsearch.distributed import presence, ray_cluster
from railsearch.distributed.cluster import Answered, Fate, Refused, Replica, Vanished
from railsearch.distributed.ray_workers import RayWorkers
from railsearch.distributed.workers import Call, Lost
from railsearch.errors import ClusterError, IndexFolderError, IndexLockedError, InvalidInputError

GONE = Vanished("killed")
PATIENT_LOOKS = 50
"""Looks that take longer than a read waits before it is hedged."""
Behaviour = Callable[[Call], Fate | None]
"""Returns the fate of a call; None if it never ends."""


class FakeCluster:
    """Replicas that do what a test tells them. Each call of a replica is written down."""

    def __init__(self, num_shards: int = 1, replicas: int = 2) -> None:
        self.replicas = [Replica(shard, number) for shard in range(num_shards) for number in range(replicas)]
        self.behaviours: dict[Replica, Behaviour] = {}
        self.log: list[tuple[Replica, str]] = []
        self.replaced: list[Replica] = []
        self.is_closed = False
        self._tickets = itertools.count()
        self._last = -1
        self._fates: dict[int, Fate] = {}
        self._num_looks = 0
        self.at_last: Callable[[], None] = lambda: None
        """Called once somebody has looked in vain for a while."""

    def send(self, replica: Replica, call: Call) -> int:
        self._last = ticket = next(self._tickets)
        self.log.append((replica, call.method))
        fate = self.behaviours.get(replica, lambda _: Answered(replica.number))(call)
        if fate is not None:
            self._fates[ticket] = fate
        return ticket

    def wait(self, tickets: Sequence[int], seconds: float) -> list[int]:
        done = [ticket for ticket in tickets if ticket in self._fates]
        if not done:
            time.sleep(min(seconds, 0.002))
            self._num_looks += 1
            if self._num_looks == PATIENT_LOOKS:
                self.at_last()
        return done

    def fate(self, ticket: int) -> Fate:
        return self._fates[ticket]

    def replace(self, replica: Replica) -> None:
        self.replaced.append(replica)
        self.behaviours.pop(replica, None)

    def close(self) -> None:
        self.is_closed = True

    def end_all(self, fate: Fate) -> None:
        for ticket in range(self._last + 1):
            self._fates.setdefault(ticket, fate)

    def asked(self, method: str) -> list[Replica]:
        return [replica for replica, own in self.log if own == method]


@pytest.fixture(autouse=True)
def fast_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "PROBE_SECONDS", 0.005)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def search(shard: int = 0) -> Call:
    return Call(shard, "search", {"version": 3})


def test_answers_come_in_the_order_of_the_calls_and_load_is_spread() -> None:
    cluster = FakeCluster(num_shards=3)
    cluster.behaviours = {own: lambda call: Answered(call.shard) for own in cluster.replicas}
    workers = RayWorkers(cluster)
    for _ in range(4):
        assert workers.ask([search(2), search(0), search(1)]) == [2, 0, 1]
    assert set(cluster.asked("search")) == set(cluster.replicas)
    assert (workers.num_retried, workers.num_hedged, workers.num_away) == (0, 0, 0)


@pytest.mark.parametrize("method", ["search", "put"])
def test_a_call_of_a_lost_replica_is_sent_to_another_one(method: str) -> None:
    cluster = FakeCluster()
    first, _ = cluster.replicas
    cluster.behaviours[first] = lambda call: GONE
    workers = RayWorkers(cluster)
    assert [workers.ask([Call(0, method)]) for _ in range(6)] == [[1]] * 6
    assert workers.num_retried == 1  # it is not asked again while it is away
    assert workers.num_away == 1
    workers.close()
    assert cluster.is_closed


def test_a_replica_comes_back_after_it_has_opened_the_version_in_use() -> None:
    cluster = FakeCluster()
    first, _ = cluster.replicas
    opened: list[object] = []
    cluster.behaviours[first] = lambda call: GONE

    def refuse(call: Call) -> Fate:
        opened.append(call.arguments["version"])
        return Refused(IndexFolderError("damaged"))

    workers = RayWorkers(cluster)
    workers.ask([search(), search()])
    cluster.behaviours[first] = refuse
    wait_until(lambda: len(opened) > 2)
    assert workers.num_away == 1
    assert set(opened) == {3}
    del cluster.behaviours[first]
    wait_until(lambda: workers.num_away == 0)
    assert {workers.ask([search()])[0] for _ in range(4)} == {0, 1}
    assert not cluster.replaced


def test_a_process_that_does_not_come_back_is_replaced() -> None:
    cluster = FakeCluster(replicas=1)
    (only,) = cluster.replicas
    cluster.behaviours[only] = lambda call: Vanished("dead", is_final=True)
    workers = RayWorkers(cluster)
    assert workers.ask([search()]) == [0]
    assert cluster.replaced == [only]


def test_a_shard_that_stays_away_is_lost_and_later_calls_do_not_wait() -> None:
    cluster = FakeCluster(num_shards=2)
    for replica in cluster.replicas[2:]:
        cluster.behaviours[replica] = lambda call: GONE
    workers = RayWorkers(cluster, deadline_seconds=0.05)
    whole, lost = workers.ask([search(0), search(1)])
    assert whole in (0, 1)
    assert isinstance(lost, Lost)
    assert lost.shard == 1
    assert "replica 0 of shard 1: killed" in lost.reason
    wait_until(lambda: time.monotonic() >= (workers._presence.all_away_since(1) or 0.0) + 0.05)
    tries = len(cluster.asked("search"))
    assert isinstance(workers.ask([search(1)])[0], Lost)
    assert len(cluster.asked("search")) == tries
    workers.close()


def test_a_slow_read_is_asked_at_a_second_replica_and_a_write_is_not() -> None:
    cluster = FakeCluster()
    slow, fast = cluster.replicas
    cluster.behaviours = {slow: lambda call: None, fast: lambda call: Answered("fast")}
    workers = RayWorkers(cluster, deadline_seconds=100.0, hedge_seconds=0.01)
    assert [workers.ask([search()]) for _ in range(2)] == [["fast"]] * 2
    assert workers.num_hedged == 1
    cluster.at_last = lambda: cluster.end_all(Answered("slow"))
    assert {workers.ask([Call(0, "put")])[0] for _ in range(2)} == {"fast", "slow"}
    assert len(cluster.asked("put")) == 2


def test_a_change_under_way_is_waited_for_beyond_the_deadline() -> None:
    cluster = FakeCluster(replicas=1)
    cluster.behaviours[cluster.replicas[0]] = lambda call: None
    workers = RayWorkers(cluster, deadline_seconds=0.0)
    cluster.at_last = lambda: cluster.end_all(Answered("done"))
    assert workers.ask([Call(0, "compact")]) == ["done"]


def test_a_read_without_an_answer_is_lost() -> None:
    cluster = FakeCluster()
    for replica in cluster.replicas:
        cluster.behaviours[replica] = lambda call: None
    workers = RayWorkers(cluster, deadline_seconds=0.02, hedge_seconds=None)
    assert workers.ask([search()]) == [Lost(0, "no answer within 0.02 seconds")]
    assert len(cluster.asked("search")) == 1


def test_an_error_is_raised_as_it_is_after_changes_under_way_have_ended() -> None:
    cluster = FakeCluster(num_shards=2, replicas=1)
    error = InvalidInputError("k is 0")
    cluster.behaviours[cluster.replicas[0]] = lambda call: Refused(error)
    workers = RayWorkers(cluster)
    with pytest.raises(InvalidInputError) as caught:
        workers.ask([search(0), search(1)])
    assert caught.value is error
    cluster.behaviours[cluster.replicas[1]] = lambda call: None
    ended: list[bool] = []
    cluster.at_last = lambda: (ended.append(True), cluster.end_all(Answered(1)))
    with pytest.raises(InvalidInputError):
        workers.ask([Call(0, "put"), Call(1, "put")])
    assert ended


def test_a_damaged_folder_of_one_node_is_read_elsewhere() -> None:
    cluster = FakeCluster()
    cluster.behaviours[cluster.replicas[0]] = lambda call: Refused(IndexFolderError("damaged"))
    workers = RayWorkers(cluster)
    assert [workers.ask([search()]) for _ in range(2)] == [[1], [1]]
    cluster.behaviours[cluster.replicas[1]] = lambda call: Refused(IndexFolderError("damaged, too"))
    with pytest.raises(IndexFolderError):
        workers.ask([search()])


def test_a_retried_change_waits_for_the_lock_of_the_lost_process() -> None:
    cluster = FakeCluster()
    fates: list[Fate] = [GONE, Refused(IndexLockedError("locked")), Refused(IndexLockedError("locked")), Answered(7)]
    for replica in cluster.replicas:
        cluster.behaviours[replica] = lambda call: Answered(0) if call.method == "open" else fates.pop(0)
    workers = RayWorkers(cluster)
    assert workers.ask([Call(0, "put")]) == [7]
    fates.append(Refused(IndexLockedError("another writer")))
    with pytest.raises(IndexLockedError):
        workers.ask([Call(0, "put")])


def test_all_replicas_open_a_version() -> None:
    cluster = FakeCluster(num_shards=2, replicas=3)
    RayWorkers(cluster).ask([Call(0, "open", {"version": 1}), Call(1, "open", {"version": 1})])
    assert sorted(cluster.asked("open"), key=str) == sorted(cluster.replicas, key=str)


@pytest.mark.parametrize("release", ["1.13.0", "2.9.3", "2.39.0rc1"])
def test_an_old_ray_is_refused(release: str) -> None:
    with pytest.raises(ClusterError, match=rf"Ray {release} is installed but 2\.40 or newer is needed; .*pip install"):
        ray_cluster.check_release(release)


@pytest.mark.parametrize("address", ["nowhere", "host:port", "ray://host:10001", ":6379", "host:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="give HOST:PORT of its head, or auto"):
        ray_cluster._check_address(address)


def test_an_address_where_nobody_listens_is_refused_at_once() -> None:
    with pytest.raises(ClusterError, match=r"at 127\.0\.0\.1:1: Connection refused; start one, see"):
        ray_cluster._check_address("127.0.0.1:1")


def test_a_wrong_number_of_replicas_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="replicas is 0; give at least 1"):
        RayWorkers.start([], replicas=0)
