"""The queue of searches: answers do not depend on batches, and requests that nobody waits for are dropped."""

import random
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.index import parse_strategy
from railsearch.server.batching import Outcome, Pending, Question, SearchQueue
from railsearch.server.limits import Limits
from railsearch.server.metrics import Metrics
from railsearch.server.problems import Problem
from railsearch.server.served_index import ServedIndex
from tests.support.served import make_index, make_queries

QUERIES = torch.tensor(make_queries(40))
STRATEGIES = ["BruteForce", "TwoPass", "Adaptive", "Average(20)", "PerComponent(3)", "Combined(3, 10)"]
PLAIN = Question(5, None, None, pad=False)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> ServedIndex:
    path = tmp_path_factory.mktemp("batching") / "movies.index"
    make_index(path)
    served = ServedIndex(path, metrics=Metrics())
    served.open()
    return served


def ask(served: ServedIndex, queries: Tensor, question: Question = PLAIN, **more: object) -> tuple[Pending, list]:
    """Return a request, and the list that its outcome will be in."""
    outcomes: list[Outcome | Exception] = []
    settings = {"exclude": None, "filter_viewed": True, "deadline": time.monotonic() + 100, **more}
    pending = Pending(served, "embeddings", queries, len(queries), question, finish=outcomes.append, **settings)
    return pending, outcomes


def answer_all(requests: list[tuple[Pending, list]], metrics: Metrics | None = None) -> list[Outcome | Exception]:
    """Queue all requests, then start to answer them."""
    queue = SearchQueue(Limits(), metrics or Metrics())
    for pending, _ in requests:
        queue.put(pending)
    queue.start()
    queue.close()
    assert queue.depth == 0
    assert all(len(outcomes) == 1 for _, outcomes in requests)
    return [outcomes[0] for _, outcomes in requests]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_answer_does_not_depend_on_its_batch(index: ServedIndex, strategy: str) -> None:
    if not index.current.index.contents.corpus.kernel.is_bit_stable:
        pytest.skip("torch's matrix products depend on the shape of a batch")
    question = Question(7, parse_strategy(strategy), None, pad=False)
    alone = [answer_all([ask(index, QUERIES[row : row + 1], question)])[0].result for row in range(len(QUERIES))]
    choice = random.Random(3)
    for _ in range(10):
        rows = [choice.sample(range(len(QUERIES)), choice.choice([1, 1, 2, 5])) for _ in range(12)]
        excluded = [choice.choice([None, [[]] * len(own)]) for own in rows]
        requests = [
            ask(index, QUERIES[own], question, exclude=given) for own, given in zip(rows, excluded, strict=True)
        ]
        for own, outcome in zip(rows, answer_all(requests), strict=True):
            for place, row in enumerate(own):
                for name in ("ids", "scores", "ceiling", "num_scored"):
                    assert torch.equal(getattr(outcome.result, name)[place], getattr(alone[row], name)[0]), name


def test_batches_hold_what_waits(index: ServedIndex) -> None:
    metrics = Metrics()
    other = Question(6, None, None, pad=False)
    requests = [ask(index, QUERIES[:10], PLAIN if number % 2 else other) for number in range(8)]
    outcomes = answer_all(requests, metrics)
    assert [outcome.result.ids.shape[1] for outcome in outcomes] == [6, 5] * 4
    text = metrics.to_text().decode()
    assert 'railsearch_batch_queries_sum{index="movies"} 80.0' in text
    assert 'railsearch_batch_queries_count{index="movies"} 4.0' in text  # 30 and 10 of each kind
    assert 'railsearch_results_total{exactness="exact",index="movies"} 80.0' in text


def test_a_wrong_request_fails_alone(index: ServedIndex) -> None:
    whole = index.current.index.ids.tolist()
    requests = [
        ask(index, QUERIES[:2]),
        ask(index, QUERIES[:1], exclude=[whole]),
        ask(index, QUERIES[:1], exclude=[["text"]]),
        ask(index, QUERIES[2:3], exclude=[[1]]),
    ]
    good, empty, wrong, last = answer_all(requests)
    assert torch.equal(good.result.ids, index.current.index.search(QUERIES[:2], 5).ids)
    assert isinstance(empty, NotEnoughItemsError)
    assert "exclude leaves query 0" in str(empty)
    assert type(wrong) is InvalidInputError
    assert torch.equal(last.result.ids, index.current.index.search(QUERIES[2:3], 5, exclude=[[1]]).ids)


def test_expired_and_abandoned_requests_are_not_searched(index: ServedIndex) -> None:
    metrics = Metrics()
    late = ask(index, QUERIES[:1], deadline=time.monotonic() - 1)
    gone = ask(index, QUERIES[:1])
    gone[0].is_gone = True
    good = ask(index, QUERIES[:1])
    expired, dropped, outcome = answer_all([late, gone, good], metrics)
    assert isinstance(expired, Problem)
    assert (expired.name, expired.status, expired.headers["Retry-After"]) == ("deadline", 503, "1")
    assert isinstance(dropped, Problem)
    assert isinstance(outcome, Outcome)
    assert 'railsearch_batch_queries_sum{index="movies"} 1.0' in metrics.to_text().decode()


def test_the_queue_is_bounded(index: ServedIndex) -> None:
    queue = SearchQueue(Limits(queue_queries=10), Metrics())
    queue.put(ask(index, QUERIES[:7])[0])
    assert not queue.is_full
    with pytest.raises(Problem) as raised:
        queue.put(ask(index, QUERIES[:4])[0])
    assert (raised.value.status, raised.value.limit, raised.value.closes) == (429, ("queue_queries", 10), True)
    queue.put(ask(index, QUERIES[:3])[0])
    assert (queue.depth, queue.is_full) == (10, True)
    queue.start()
    queue.close()
    with pytest.raises(Problem, match="the server stops"):
        queue.put(ask(index, QUERIES[:1])[0])


def test_the_queue_holds_what_can_be_answered_soon(index: ServedIndex) -> None:
    queue = SearchQueue(Limits(queue_queries=256, max_wait_ms=100), Metrics())
    assert queue.room == 256  # nothing is known yet
    for rate, room in ((10.0, 64), (1200.0, 120), (1e6, 256)):
        queue._rate = rate
        assert queue.room == room
    queue._rate = 10.0
    queue.put(ask(index, QUERIES.repeat(2, 1))[0])  # a large request is not refused if nothing waits
    assert queue.is_full
    with pytest.raises(Problem, match="80 queries wait and the queue has room for 64") as raised:
        queue.put(ask(index, QUERIES[:1])[0])
    assert raised.value.limit == ("queue_queries", 256)  # as the server describes its limits


class PanicError(BaseException):
    """As polars raises it: not an Exception."""


class Panicking:
    def find_rows(self, *_: object) -> None:
        raise PanicError("/secret")


def test_a_fault_does_not_end_the_thread(index: ServedIndex, caplog: pytest.LogCaptureFixture) -> None:
    broken = ask(index, QUERIES[:1], Question(5, object(), None, pad=False))  # not a strategy
    worse = ask(index, QUERIES[:1])
    worse[0].values = object()
    panicking = ask(index, QUERIES[:1], Question(5, Panicking(), None, pad=False))
    good = ask(index, QUERIES[:1])
    outcomes = answer_all([broken, worse, panicking, good])
    assert isinstance(outcomes[0], Exception)
    assert isinstance(outcomes[1], Exception)
    assert isinstance(outcomes[2], Problem)
    assert (outcomes[2].status, "secret" in outcomes[2].detail) == (500, False)
    assert isinstance(outcomes[3], Outcome)
    assert "a search failed" in caplog.text


def test_one_version_answers_a_batch(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index", 30)
    served = ServedIndex(tmp_path / "movies.index", metrics=Metrics())
    served.open()
    before = served.current
    served.change(lambda index: index.remove([3], missing_ok=False))
    assert (before.version, len(before)) == (1, 30)
    assert (served.current.version, len(served.current)) == (2, 29)
    assert len(before.index.search(QUERIES[:1], 30).ids[0]) == 30
    assert not served.is_behind()
    assert not served.refresh()


def test_another_index_of_the_same_version_is_noticed(tmp_path: Path) -> None:
    make_index(tmp_path / "movies.index", 30)
    served = ServedIndex(tmp_path / "movies.index", metrics=Metrics())
    served.open()
    assert not served.is_behind()
    make_index(tmp_path / "new.index", 40)
    (tmp_path / "movies.index").rename(tmp_path / "old.index")
    (tmp_path / "new.index").rename(tmp_path / "movies.index")
    assert served.is_behind()
    assert served.refresh()
    assert (served.current.version, len(served.current)) == (1, 40)
    assert not served.is_behind()
