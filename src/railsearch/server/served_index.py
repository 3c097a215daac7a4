"""One index that is served: the version that answers, and changes that put a new version in its place."""

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.index import Engine
from railsearch.server.encoding import QueryModel
from railsearch.server.metrics import Metrics
from railsearch.server.searched import Searched
from railsearch.server.split_index import ShardSettings, SplitIndex, is_split
from railsearch.server.whole_index import WholeIndex

logger = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def name_of(path: Path) -> str:
    """Return the name of an index: that of its folder, without ".index".

    >>> name_of(Path("/data/movies.index"))
    'movies'
    """
    name = path.name.removesuffix(".index")
    if not NAME.fullmatch(name):
        raise InvalidInputError(
            f"the folder {path.name!r:.80} cannot name an index; rename it: letters, digits, dots, dashes and "
            "underscores, at most 64, the first a letter or a digit."
        )
    return name


class ServedIndex:
    """An index folder that is searched while it changes.

    `current` is never changed, only replaced: a search that has taken it sees one version from start to end.
    """

    def __init__(
        self,
        path: Path,
        *,
        metrics: Metrics,
        model: QueryModel | None = None,
        engine: Engine | None = None,
        shards: ShardSettings | None = None,
    ) -> None:
        self.path = path
        self.name = name_of(path)
        self.model = model
        self._engine = engine
        self._shards = shards or ShardSettings()
        self._metrics = metrics
        self._changing = threading.Lock()
        self._index: Searched | None = None

    def open(self) -> None:
        """Open the newest version, and warm it up; refuse an index of another model."""
        with self._changing:
            self._replace(self._opened())

    @property
    def current(self) -> Searched:
        """The version that is searched now."""
        assert self._index is not None
        return self._index

    def refresh(self) -> bool:
        """Serve the newest version of the folder; return True if it differs from the one before.

        It is opened and warmed up beside the current one. A folder that was replaced by another index is opened too.
        """
        with self._changing:
            try:
                newest = self.current.newest()
            except IndexFolderError:  # another index is at this path, or there is none
                newest = self._opened()
            if newest.is_same(self.current):
                return False
            self._replace(newest)
            return True

    def is_behind(self) -> bool:
        """Return whether the folder has another version than the one that is served."""
        return self.current.is_behind()

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._index is not None:
            self._index.close()

    def change(self, work: Callable[[Searched], None]) -> Searched:
        """Change the newest version and serve the result; return it. Durable and searched once this returns."""
        with self._changing:
            writer = self.current.newest()
            work(writer)
            if not writer.is_same(self.current):
                self._replace(writer)
            return writer

    def change_beside(self, work: Callable[[Searched], None]) -> Searched:
        """Do the same with long work: refreshes go on, but other changes are refused while it locks the folder."""
        writer = self.current.newest()
        work(writer)
        with self._changing:
            newest = writer.newest()  # other changes may have followed
            if not newest.is_same(self.current):
                self._replace(newest)
        return writer

    def _opened(self) -> Searched:
        index: Searched
        if is_split(self.path):
            index = SplitIndex.open(self.path, settings=self._shards, engine=self._engine)
        else:
            index = WholeIndex.open(self.path, engine=self._engine)
        if self.model is not None:
            index.check_model(self.model.source)
        return index

    def _replace(self, index: Searched) -> None:
        index.warm_up()
        self._index = index
        self._metrics.index_version.labels(self.name).set(index.version)
        self._metrics.index_items.labels(self.name).set(len(index))
        logger.info("index %s: version %d with %d items", self.name, index.version, len(index))
