"""Calls that a server needs of a split index: snapshots side by side, stable queries, and items by id or text."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.distributed.layout import Layout
from railsearch.distributed.locating import Located, check_ids, locate
from railsearch.distributed.opened import OpenSnapshot
from railsearch.distributed.searching import answers_of, ids_of_shards, items_of
from railsearch.distributed.sharded_index import ShardedIndex
from railsearch.distributed.similar import vectors_of
from railsearch.distributed.workers import Call
from railsearch.foundation.errors import IndexFolderError, InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, check_count
from railsearch.index.keys import NOT_FOUND
from railsearch.index.metadata import KEY
from railsearch.index.searching import QUERIES_PER_BATCH
from railsearch.index.similar import similarity_vectors
from railsearch.index.tuned import TunedStrategy
from railsearch.kernels.sides import has_stable_sides
from railsearch.similarity import QueryParts

if TYPE_CHECKING:
    from polars import DataFrame, Schema

NO_USER = -1


def reopen(index: ShardedIndex) -> ShardedIndex:
    """Return the newest snapshot as another index with the same workers; the given one stays at its snapshot."""
    if Layout.read(index.path) != index.layout:
        raise IndexFolderError(f"{index.path} was split again; start the server again.")
    return ShardedIndex.open(index.path, workers=index.workers)


def is_behind(index: ShardedIndex) -> bool:
    """Return whether the folder has another snapshot than the one that is open."""
    return OpenSnapshot.read(index.path, index.layout).snapshot != index.opened.snapshot


def query_parts(index: ShardedIndex, queries: ArrayLike, *, user_ids: Tensor | None = None) -> QueryParts:
    """Return the query side of queries; that of one query does not depend on the others."""
    side = index.query_side
    given = as_embeddings(queries, name="queries", shape=side.similarity.query_shape).to(side.like)
    if has_stable_sides(side.similarity, given):
        return side.parts(given, user_ids)
    num_missing = -len(given) % QUERIES_PER_BATCH
    padded = torch.cat([given, given.new_zeros(num_missing, *given.shape[1:])])
    users = None if user_ids is None else torch.cat([user_ids, user_ids.new_full((num_missing,), NO_USER)])
    parts = side.parts(padded, users)
    gate = None if parts.gate is None else parts.gate[: len(given)]
    return QueryParts(parts.components[: len(given)], gate)


def tuned_strategies(index: ShardedIndex) -> dict[str, TunedStrategy]:
    """Return the strategies that were tuned before the split, by the k and the engine."""
    return {name: TunedStrategy.parse(text) for name, text in index.opened.manifests[0].tuned.items()}


def metadata_schema(index: ShardedIndex) -> "Schema":
    """Return the names and types of the metadata columns, without string ids."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    if not index.opened.has_metadata:
        return pl.Schema()
    empty = items_of(index.workers, index.opened.snapshot, torch.empty(0, dtype=torch.int64), [])
    return pl.Schema({name: kind for name, kind in empty.schema.items() if name != KEY})


def describe_items(index: ShardedIndex, ids: ArrayLike) -> "DataFrame":
    """Return a table of items: the column id, and their metadata. Raises InvalidInputError if one is not there."""
    import polars as pl  # noqa: PLC0415

    snapshot = index.opened.snapshot
    found = locate(index.workers, index.layout, snapshot.versions, check_ids(ids, index.layout))
    num_missing = int((found.integers == NOT_FOUND).sum())
    if num_missing:
        raise InvalidInputError(f"{num_missing} of {len(found.integers)} ids are not in the index.")
    integers = pl.Series(KEY, found.integers.numpy())
    if not index.opened.has_metadata:
        return integers.to_frame()
    rows = items_of(index.workers, snapshot, found.integers, found.shards.tolist())
    return rows.select(KEY, pl.exclude(KEY)) if KEY in rows.columns else rows.insert_column(0, integers)


def item_vectors(index: ShardedIndex, ids: Tensor) -> Tensor:
    """Return vectors (n, D) of items by integer id; their dot product is the score of `similar_items`."""
    workers, snapshot = index.workers, index.opened.snapshot
    if index.has_keys:  # integers do not say in which shard an item is
        numbers = ids_of_shards(workers, snapshot)
        located = Located(ids, torch.stack([torch.isin(ids, own) for own in numbers]).int().argmax(dim=0))
    else:
        located = locate(workers, index.layout, snapshot.versions, ids)
    found = vectors_of(workers, snapshot.versions, located)
    return similarity_vectors(found, index.query_side.similarity.num_item_components)


def find_text(index: ShardedIndex, text: str, *, limit: int = 20, column: str | None = None) -> "DataFrame":
    """Return the first items, by id, that contain a text in a column of text; see `index.serving.find_text`."""
    import polars as pl  # noqa: PLC0415

    check_count(limit, name="limit")
    arguments = {"text": text, "limit": limit, "column": column}
    calls = [
        Call(number, "find_text", {"version": version, **arguments})
        for number, version in enumerate(index.opened.snapshot.versions)
    ]
    ids: list[Tensor] = []
    frames: list[DataFrame] = []
    for answer in answers_of(index.workers, calls):
        assert isinstance(answer, tuple)
        ids.append(answer[0])
        frames.append(answer[1])
    first = torch.cat(ids).argsort()[:limit].numpy()
    return pl.concat([frame.select(frames[0].columns) for frame in frames])[first]
