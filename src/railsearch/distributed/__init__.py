"""Shards: one index over several folders, processes or machines, with the same calls and the same certificate."""

from railsearch.distributed.building import ShardBuild, build_shards
from railsearch.distributed.layout import SHARDS, SHARDS_FILE
from railsearch.distributed.searching import Partial
from railsearch.distributed.sharded_index import ShardedIndex
from railsearch.distributed.splitting import shard_index
from railsearch.distributed.workers import Call, LocalWorkers, Lost, ShardPlace, Workers
from railsearch.folders import register_opener

__all__ = [
    "Call",
    "LocalWorkers",
    "Lost",
    "Partial",
    "ShardBuild",
    "ShardPlace",
    "ShardedIndex",
    "Workers",
    "build_shards",
    "shard_index",
]

register_opener(SHARDS.name, ShardedIndex.open, config_file=SHARDS_FILE)
