"""One index that is served: the version that answers, and changes that put a new version in its place."""

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.foundation.safe_files import read_inside
from railsearch.index import Engine, Index
from railsearch.index.serving import is_same_version, reopen, warm_up
from railsearch.index.storage.manifest import Manifest
from railsearch.index.storage.places import current_version, manifest_file
from railsearch.server.encoding import QueryModel
from railsearch.server.metrics import Metrics

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
        self, path: Path, *, metrics: Metrics, model: QueryModel | None = None, engine: Engine | None = None
    ) -> None:
        self.path = path
        self.name = name_of(path)
        self.model = model
        self._engine = engine
        self._metrics = metrics
        self._changing = threading.Lock()
        self._index: Index | None = None

    def open(self) -> None:
        """Open the newest version, and warm it up; refuse an index of another model."""
        with self._changing:
            self._replace(self._opened())

    @property
    def current(self) -> Index:
        """The version that is searched now."""
        assert self._index is not None
        return self._index

    def refresh(self) -> bool:
        """Serve the newest version of the folder; return True if it differs from the one before.

        It is opened and warmed up beside the current one. A folder that was replaced by another index is opened too.
        """
        with self._changing:
            try:
                newest = reopen(self.current)
            except IndexFolderError:  # another index is at this path, or there is none
                newest = self._opened()
            if is_same_version(newest, self.current):
                return False
            self._replace(newest)
            return True

    def is_behind(self) -> bool:
        """Return whether the folder has another version than the one that is served."""
        index, version = self.current, current_version(self.path)
        if version != index.version:
            return True
        name = manifest_file(version)  # another index at this path may have reached the same number
        return Manifest.decode(read_inside(self.path, name), self.path / name) != index.contents.manifest

    def change(self, work: Callable[[Index], None]) -> Index:
        """Change the newest version and serve the result; return it. Durable and searched once this returns."""
        with self._changing:
            writer = reopen(self.current)
            work(writer)
            if not is_same_version(writer, self.current):
                self._replace(writer)
            return writer

    def change_beside(self, work: Callable[[Index], None]) -> Index:
        """Do the same with long work: refreshes go on, but other changes are refused while it locks the folder."""
        writer = reopen(self.current)
        work(writer)
        with self._changing:
            newest = reopen(writer)  # other changes may have followed
            if not is_same_version(newest, self.current):
                self._replace(newest)
        return writer

    def _opened(self) -> Index:
        index = Index.open(self.path, engine=self._engine)
        if self.model is not None:
            self.model.source.check(index)
        return index

    def _replace(self, index: Index) -> None:
        warm_up(index)
        self._index = index
        self._metrics.index_version.labels(self.name).set(index.version)
        self._metrics.index_items.labels(self.name).set(len(index))
        logger.info("index %s: version %d with %d items", self.name, index.version, len(index))
