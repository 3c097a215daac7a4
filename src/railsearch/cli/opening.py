"""Open an index folder, whether it is one index or split into shards."""

from pathlib import Path

from railsearch.distributed import ShardedIndex
from railsearch.distributed.layout import SHARDS
from railsearch.index import Engine, Index


def is_split(path: Path) -> bool:
    """Return whether a folder holds a split index, even if it is damaged."""
    return SHARDS.is_in(path)


def open_index(
    path: Path, *, version: int | None = None, engine: Engine | None = None, verify: str = "full"
) -> Index | ShardedIndex:
    """Open an index folder of either kind."""
    if is_split(path):
        return ShardedIndex.open(path, version=version, engine=engine, verify=verify)
    return Index.open(path, version=version, engine=engine, verify=verify)
