"""Batch jobs: large inputs in parts, in this process or on Ray, with output that a second run completes."""

from railsearch.distributed.batch.passages import build_passages_index
from railsearch.distributed.batch.ray_runner import RayRunner
from railsearch.distributed.batch.recommend import recommend_all
from railsearch.distributed.batch.runners import LocalRunner, Runner
from railsearch.distributed.batch.running import JobReport
from railsearch.distributed.batch.search import search_file
from railsearch.distributed.batch.shard_builds import build_with

__all__ = [
    "JobReport",
    "LocalRunner",
    "RayRunner",
    "Runner",
    "build_passages_index",
    "build_with",
    "recommend_all",
    "search_file",
]
