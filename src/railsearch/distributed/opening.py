"""Open an index folder, whether it is one index or split into shards."""

from pathlib import Path

from railsearch.distributed.layout import SHARDS
from railsearch.distributed.sharded_index import ShardedIndex
from railsearch.foundation.inputs import as_path
from railsearch.index import Engine, Index


def is_split(path: str | Path) -> bool:
    """Return whether a folder holds a split index, even if it is damaged."""
    return SHARDS.is_in(as_path(path))


def open_index(
    path: str | Path, *, version: int | None = None, engine: Engine | None = None, verify: str = "full"
) -> Index | ShardedIndex:
    """Open an index folder of either kind; the shards of a split index are opened in this process."""
    if is_split(path):
        return ShardedIndex.open(path, version=version, engine=engine, verify=verify)
    return Index.open(path, version=version, engine=engine, verify=verify)
