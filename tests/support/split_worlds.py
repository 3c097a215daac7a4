"""Split indexes for tests, and workers that lose shards."""

from collections.abc import Collection, Sequence
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from railsearch import DotProduct, Index
from railsearch.distributed import Call, LocalWorkers, Lost, ShardedIndex, Workers, shard_index
from railsearch.similarity import Similarity
from tests.support.search_worlds import make_world

KINDS = ("random", "sharp", "near ties", "duplicates", "dot", "cosine")


def make_split_world(kind: str, num_items: int, seed: int) -> tuple[Similarity, Tensor, Tensor]:
    """Return a similarity, items and queries; "cosine" is one more kind of world."""
    if kind != "cosine":
        return make_world(kind, num_items, seed)
    _, items, queries = make_world("dot", num_items, seed)
    return DotProduct(dim=6, cosine=True, temperature=0.1), items, queries


def numbered(count: int, first: int = 0) -> pl.DataFrame:
    """Return metadata with a column that conditions can use, and one that can decide the shard."""
    numbers = range(first, first + count)
    return pl.DataFrame({"year": [number % 7 for number in numbers], "genre": [f"g{number % 5}" for number in numbers]})


def make_split(folder: Path, num_shards: int, *, num_items: int = 60, by: str | None = None) -> ShardedIndex:
    """Split a small index of dot products, and open it."""
    similarity, items, _ = make_world("dot", num_items, 0)
    index = Index.build(similarity, items, path=folder / "one.index", metadata=numbered(num_items))
    return ShardedIndex.open(shard_index(index, folder / "shards", num_shards, by=by))


class Forgetful:
    """Workers that lose some shards, from a number of calls on."""

    def __init__(self, workers: Workers, lost: Collection[int], *, after: int = 0, method: str | None = None) -> None:
        self._workers = workers
        self._lost = lost
        self._after = after
        self._method = method

    def ask(self, calls: Sequence[Call]) -> list[object]:
        self._after -= 1
        return [
            Lost(call.shard, "it was unplugged") if self._is_lost(call) else self._workers.ask([call])[0]
            for call in calls
        ]

    def close(self) -> None:
        self._workers.close()

    def _is_lost(self, call: Call) -> bool:
        return call.shard in self._lost and self._after < 0 and self._method in (None, call.method)


def forgetful(index: ShardedIndex, lost: Collection[int], *, after: int = 0) -> ShardedIndex:
    """Open a split index again, with shards that stay away from the next search on."""
    assert isinstance(index.workers, LocalWorkers)
    return ShardedIndex.open(index.path, workers=Forgetful(index.workers, lost, after=1 + after))


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of scores have the same bits."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
