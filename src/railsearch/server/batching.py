"""The queue of searches and the thread that answers them: greedy batches, and no waiting for more requests.

Whatever waits when the thread is free is searched at once, up to 32 queries of one index with the same k, strategy,
filter and padding. Requests that have expired or whose client has gone are dropped when a batch is formed.
"""

import collections
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from railsearch.foundation.errors import RailsearchError
from railsearch.foundation.recall import ExpectedRecall
from railsearch.foundation.results import SearchResult
from railsearch.index import BruteForce, Strategy, format_strategy
from railsearch.index.rules import Rules
from railsearch.server.encoding import Encoded, encode
from railsearch.server.limits import Limits
from railsearch.server.metrics import Metrics
from railsearch.server.problems import Problem, problem_of
from railsearch.server.ruled import RuledSearch
from railsearch.server.searched import Searched
from railsearch.server.served_index import ServedIndex

logger = logging.getLogger(__name__)
LEAST_ROOM = 64
"""Queries that may wait even if they are answered slowly: those of a few dozen clients."""
OLD_SHARE = 0.8
"""The weight of earlier batches in the measured rate."""


@dataclass(frozen=True, slots=True)
class Question:
    """The settings that all requests of a batch share."""

    k: int
    strategy: Strategy | None
    allow: str | tuple[int | str, ...] | None
    pad: bool
    partial: str = "refuse"
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The answer to one request."""

    result: SearchResult
    index: Searched
    """The version that answered."""
    encoded: Encoded
    strategy: str
    expected_recall: ExpectedRecall | None
    queue_seconds: float
    search_seconds: float


@dataclass(slots=True, eq=False)
class Pending:
    """A request that waits."""

    served: ServedIndex
    kind: str
    values: object
    num_queries: int
    question: Question
    exclude: list[list[int] | list[str] | None] | None
    filter_viewed: bool
    deadline: float
    finish: Callable[[Outcome | Exception], None]
    """Called once, from the thread of searches."""
    arrived: float = field(default_factory=time.monotonic)
    is_gone: bool = False
    """Whether the client has closed its connection."""

    @property
    def group(self) -> Hashable:
        """Requests of equal groups may be searched together."""
        return self.served.name, self.question


class SearchQueue:
    """A bounded queue in front of one thread that searches."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._waiting: collections.deque[Pending] = collections.deque()
        self._changed = threading.Condition()
        self._depth = 0
        self._rate = 0.0  # queries per second
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="railsearch-search", daemon=True)

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    @property
    def depth(self) -> int:
        """The number of queries that wait."""
        return self._depth

    @property
    def room(self) -> int:
        """The number of queries that may wait now: those that are answered in the allowed time, and always a few."""
        limits = self._limits
        soon = int(self._rate * limits.max_wait_ms / 1000) if self._rate else limits.queue_queries
        return min(limits.queue_queries, max(LEAST_ROOM, soon))

    @property
    def is_full(self) -> bool:
        """Whether no query fits any more."""
        return self._depth >= self.room

    def refusal(self, reason: str | None = None) -> Problem:
        """Return the problem of a request that does not fit, or that is refused for another reason."""
        return Problem(
            "queue-full",
            f"{reason or f'{self._depth} queries wait and the queue has room for {self.room}'}; try again later.",
            limit=("queue_queries", self._limits.queue_queries),
            headers={"Retry-After": str(self.retry_seconds)},
            closes=True,
        )

    @property
    def retry_seconds(self) -> int:
        """The time in which the queries that wait now will be answered."""
        return min(60, max(1, math.ceil(self._depth / self._rate))) if self._rate else 1

    def put(self, pending: Pending) -> None:
        """Queue a request; raises Problem if there is no room, or if the server stops."""
        with self._changed:
            if self._is_closed:
                raise Problem(
                    "draining", "the server stops; ask another one.", headers={"Retry-After": "1"}, closes=True
                )
            wanted = self._depth + pending.num_queries
            if wanted > self._limits.queue_queries or (self._depth and wanted > self.room):
                raise self.refusal()
            self._waiting.append(pending)
            self._count(pending.num_queries)
            self._changed.notify()

    def close(self) -> None:
        """Answer everything that waits, then stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _count(self, num_queries: int) -> None:
        self._depth += num_queries
        self._metrics.queue_depth.set(self._depth)

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                self._answer(batch)

    def _next_batch(self) -> list[Pending] | None:
        """Wait for requests; return those of one batch, or None at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait()
            batch: list[Pending] = []
            others: collections.deque[Pending] = collections.deque()
            num_queries, now = 0, time.monotonic()
            while self._waiting:
                pending = self._waiting.popleft()
                if pending.is_gone or pending.deadline < now:
                    self._count(-pending.num_queries)
                    self._drop(pending)
                elif batch and pending.group != batch[0].group:
                    others.append(pending)
                elif batch and num_queries + pending.num_queries > self._limits.batch_queries:
                    others.append(pending)
                    break  # in order of arrival: a small request does not overtake
                else:
                    batch.append(pending)
                    num_queries += pending.num_queries
                    self._count(-pending.num_queries)
            others.extend(self._waiting)
            self._waiting = others
            return batch

    def _drop(self, pending: Pending) -> None:
        waited = 1000 * (time.monotonic() - pending.arrived)
        retry = {"Retry-After": str(self.retry_seconds)}
        pending.finish(
            Problem("deadline", f"the request waited {waited:.0f} ms in the queue; allow more time.", headers=retry)
        )

    def _answer(self, batch: list[Pending]) -> None:
        started = time.monotonic()
        try:
            outcomes = self._search(batch, started)
        except BaseException as error:  # a panic of polars is no Exception, and this thread must go on
            if len(batch) > 1:  # one of them is wrong: each gets its own answer
                for pending in batch:
                    self._answer([pending])
                return
            if not isinstance(error, (RailsearchError, Problem)):
                logger.exception("a search failed")
            batch[0].finish(error if isinstance(error, Exception) else problem_of(error))
            return
        seconds = time.monotonic() - started
        rate = sum(pending.num_queries for pending in batch) / max(seconds, 1e-6)
        self._rate = OLD_SHARE * self._rate + (1 - OLD_SHARE) * rate if self._rate else rate
        for pending, outcome in zip(batch, outcomes, strict=True):
            pending.finish(outcome)

    def _search(self, batch: list[Pending], started: float) -> list[Outcome]:
        served, question = batch[0].served, batch[0].question
        index = served.current  # one version answers the whole batch
        encoded = [encode(index, served.model, pending.kind, pending.values) for pending in batch]
        excluded = [_excluded(index, pending, own) for pending, own in zip(batch, encoded, strict=True)]
        parts = index.query_parts(_joined(index, encoded), _joined_users(encoded))
        tuned = index.tuned_strategy(question.k)
        strategy = question.strategy or (BruteForce() if tuned is None else tuned.strategy)
        exclude = None
        if any(own is not None for own in excluded):
            exclude = [
                ids
                for own, pending in zip(excluded, batch, strict=True)
                for ids in (own or [None] * pending.num_queries)
            ]
        allow = list(question.allow) if isinstance(question.allow, tuple) else question.allow
        searching = time.monotonic()
        if question.rules:
            ruled = RuledSearch(index, parts, strategy, exclude, allow, self._limits, question)
            result = ruled.answer()
        else:
            result = index.search(
                parts, question.k, strategy, exclude, allow, pad=question.pad, partial=question.partial
            )
        seconds = time.monotonic() - searching
        self._measure(batch, result, strategy, seconds, started)
        outcomes, first = [], 0
        for pending, own, given in zip(batch, encoded, excluded, strict=True):
            rows = slice(first, first + pending.num_queries)
            is_filtered = given is not None or question.allow is not None or bool(question.rules)
            outcomes.append(
                Outcome(
                    result=_rows_of(result, rows),
                    index=index,
                    encoded=own,
                    strategy=format_strategy(strategy),
                    expected_recall=None if tuned is None else tuned.recall_of(strategy, is_filtered=is_filtered),
                    queue_seconds=started - pending.arrived,
                    search_seconds=seconds,
                )
            )
            first += pending.num_queries
        return outcomes

    def _measure(
        self, batch: list[Pending], result: SearchResult, strategy: Strategy, seconds: float, started: float
    ) -> None:
        name, metrics = batch[0].served.name, self._metrics
        metrics.batch_queries.labels(name).observe(len(result.ids))
        metrics.search_seconds.labels(name, type(strategy).__name__).observe(seconds)
        for pending in batch:
            metrics.queue_seconds.labels(name).observe(started - pending.arrived)
        for is_exact, gap, scored in zip(
            result.is_exact.tolist(), result.gap.tolist(), result.num_scored.tolist(), strict=True
        ):
            exactness = "exact" if is_exact else "bounded" if math.isfinite(gap) else "unbounded"
            metrics.results.labels(name, exactness).inc()
            metrics.items_scored.labels(name).observe(scored)
            if math.isfinite(gap):
                metrics.gap.labels(name).observe(gap)


def _joined(index: Searched, encoded: list[Encoded]) -> Tensor:
    return torch.cat([own.queries.to(index.like) for own in encoded])  # (B, D) or (B, Pq, d)


def _joined_users(encoded: list[Encoded]) -> Tensor | None:
    if all(own.user_ids is None for own in encoded):
        return None
    unknown = [torch.full((len(own.queries),), -1) for own in encoded]
    return torch.cat(
        [none if own.user_ids is None else own.user_ids for own, none in zip(encoded, unknown, strict=True)]
    )  # (B,)


def _excluded(index: Searched, pending: Pending, encoded: Encoded) -> list[object] | None:
    """Return the ids that each query of a request must not find; None if nothing is excluded."""
    if not pending.filter_viewed or encoded.viewed is None:
        return None if pending.exclude is None else list(pending.exclude)
    if pending.exclude is None:
        return list(encoded.viewed)
    both = zip(encoded.viewed, pending.exclude, strict=True)
    return [torch.cat([seen, index.to_integers(own or [], name="exclude")]) for seen, own in both]


def _rows_of(result: SearchResult, rows: slice) -> SearchResult:
    locate = result.locate
    return SearchResult(
        ids=result.ids[rows],
        scores=result.scores[rows],
        ceiling=result.ceiling[rows],
        num_scored=result.num_scored[rows],
        lookup=result.lookup,
        has_keys=result.has_keys,
        coverage=result.coverage,
        locate=None if locate is None else lambda queries, ids: locate(queries + rows.start, ids),
    )
