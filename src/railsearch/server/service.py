"""The service behind the routes: indexes by name, the queue of searches, jobs, and the state of the server."""

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from railsearch.errors import RailsearchError
from railsearch.foundation.errors import FingerprintError, InvalidInputError
from railsearch.index import Engine
from railsearch.server.batching import SearchQueue
from railsearch.server.encoding import QueryModel
from railsearch.server.hosts import Hosts, check_origin
from railsearch.server.jobs import Jobs
from railsearch.server.keys import Keys
from railsearch.server.limits import Limits
from railsearch.server.metrics import Metrics
from railsearch.server.problems import Problem
from railsearch.server.served_index import ServedIndex
from railsearch.server.split_index import ShardSettings

Result = TypeVar("Result")
logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.01
"""Time between two looks at how late the event loop is."""
LATE_SECONDS = 0.25
"""A delay of the event loop that a few dozen clients alone do not cause."""
MANY_REQUESTS = 32
"""Requests under way from which a late event loop is taken for overload; with fewer, other work delays it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a server behaves towards its clients."""

    keys: Keys = field(default_factory=Keys)
    is_writable: bool = False
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    body_seconds: float = 20.0
    """The time in which the body of a request must arrive."""
    watch_seconds: float | None = None
    """How often the folders are looked at for new versions; None for never."""
    owns_process: bool = False
    """Whether the process does nothing else."""


class Service:
    """Everything that the routes of a server work with."""

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        settings: ServerSettings,
        models: Iterable[QueryModel] = (),
        engine: Engine | None = None,
        shards: ShardSettings | None = None,
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.hosts = Hosts(settings.allowed_hosts)
        for origin in settings.cors_origins:
            check_origin(origin)
        self.metrics = Metrics()
        self.queue = SearchQueue(self.limits, self.metrics)
        self.indexes: dict[str, ServedIndex] = {}
        self._models = list(models)
        for path in paths:
            served = ServedIndex(path.resolve(), metrics=self.metrics, engine=engine, shards=shards)
            other = self.indexes.setdefault(served.name, served)
            if other is not served:
                raise InvalidInputError(
                    f"{path} and {other.path} are both called {served.name!r}; rename one of the folders."
                )
        if not self.indexes:
            raise InvalidInputError("no index was given; name at least one index folder.")
        self.names = {str(served.path): name for name, served in self.indexes.items()}
        self.jobs = Jobs(self.names)
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="railsearch-work")
        self._writers = ThreadPoolExecutor(1, thread_name_prefix="railsearch-write")
        self._num_working = 0
        self.is_ready = False
        self.is_draining = False
        self._lateness = 0.0  # seconds that the event loop is behind
        self.num_under_way = 0
        """The number of searches between their head and their answer."""
        self.failure: BaseException | None = None
        """Why the indexes could not be opened; the server then stops."""
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def open(self) -> None:
        """Open all indexes, give each the model that built it, and start to answer."""
        self.queue.start()
        used: set[int] = set()
        for served in self.indexes.values():
            served.open()
            kinds = [model for model in self._models if model.source.is_same(served.current.source.get("model"))]
            if kinds:
                served.model = kinds[0]
                used.add(id(kinds[0]))
        for model in self._models:
            if id(model) not in used:
                if len(self.indexes) == 1:
                    next(iter(self.indexes.values())).current.check_model(model.source)
                raise FingerprintError(
                    f"{model.kind} {model.source.fingerprint} has built none of the indexes; give the model that has."
                )
        if self.settings.watch_seconds is not None:
            self._watcher = threading.Thread(target=self._watch, name="railsearch-watch", daemon=True)
            self._watcher.start()
        if self.settings.owns_process:
            # What is loaded now stays. The garbage collector would look at all of it again every few seconds, which
            # stops all threads for a fifth of a second.
            gc.collect()
            gc.freeze()
        self.is_ready = True

    def close(self) -> None:
        """Answer what waits, and stop."""
        if self.settings.owns_process:
            gc.unfreeze()
        self.is_draining = True
        self._stopped.set()
        self.queue.close()
        self._workers.shutdown(wait=True)
        self._writers.shutdown(wait=True)
        for served in self.indexes.values():
            served.close()
        self.jobs.wait(1.0)

    def index(self, name: str) -> ServedIndex:
        """Return the index of a name; raises Problem if there is none, or if it is not open yet."""
        served = self.indexes.get(name)
        if served is None:
            raise Problem("not-found", f"there is no index {name!r:.80}; choose from: {', '.join(self.indexes)}.")
        if not self.is_ready:
            raise Problem("loading", "the indexes are being opened; try again.", headers={"Retry-After": "1"})
        return served

    def check_load(self) -> None:
        """Raise Problem if another search would wait too long: in the queue, or because the event loop is behind.

        Requests that arrive faster than they can be read wait in the system's buffers, where no queue counts them.
        """
        if self.queue.is_full:
            raise self.queue.refusal()
        if self._lateness > LATE_SECONDS and self.num_under_way >= MANY_REQUESTS:
            raise self.queue.refusal("requests arrive faster than this server reads them")

    async def _measure_lateness(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            planned = loop.time() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self._lateness = loop.time() - planned

    async def in_thread(self, work: Callable[[], Result], *, changes: bool = False) -> Result:
        """Run work beside the event loop; changes run one after the other. Raises Problem if too much waits."""
        if self._num_working >= self.limits.max_working:
            raise Problem(
                "overloaded",
                f"{self._num_working} requests are worked on; try again later.",
                limit=("max_working", self.limits.max_working),
                headers={"Retry-After": "1"},
            )
        self._num_working += 1
        try:
            pool = self._writers if changes else self._workers
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            self._num_working -= 1

    def _watch(self) -> None:
        """Follow the folders: serve a new version as soon as it is there."""
        assert self.settings.watch_seconds is not None
        while not self._stopped.wait(self.settings.watch_seconds):
            for served in self.indexes.values():
                try:
                    if served.is_behind():
                        served.refresh()
                except (RailsearchError, OSError) as error:
                    logger.warning("index %s cannot be refreshed: %s", served.name, error)
                except BaseException:  # whatever it is, the folders are followed on
                    logger.exception("index %s cannot be refreshed", served.name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open beside the event loop, so that health can be asked meanwhile; close at the end."""
        opening = asyncio.get_running_loop().run_in_executor(None, self._try_to_open)
        measuring = asyncio.create_task(self._measure_lateness())
        try:
            yield
        finally:
            measuring.cancel()
            await opening
            await asyncio.get_running_loop().run_in_executor(None, self.close)

    def _try_to_open(self) -> None:
        try:
            self.open()
        except BaseException as error:  # a panic of polars too: without a failure, the server would load forever
            self.failure = error
