"""Contract test of engines that keep a collection on a server; `check_engine` calls it."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from railsearch.index.engines import (
    Collection,
    CollectionEngine,
    CollectionTable,
    Engine,
    Stamp,
    Table,
    as_collection_engine,
)
from railsearch.index.engines.collection import LARGEST_ID

STAMP = Stamp(
    birth="0" * 32, fingerprint="0" * 64, version=1, layout="", num_items=0, num_components=1, component_dim=8,
    is_complete=True,
)  # fmt: skip
WORTH_AN_INDEX = 100
"""Smaller tables are searched as they are, because a server takes seconds to finish a collection."""


def check_is_free(engine: Engine) -> None:
    """Check that the collection of an engine does not exist, because the test drops it; engines of tables pass."""
    keeper = as_collection_engine(engine)
    if keeper is None:
        return
    assert not engine.is_exact, "an engine that keeps a collection is not exact: a server decides what a search sees"
    collection = keeper.connect()
    try:
        state = collection.describe()
    finally:
        collection.close()
    assert state is None, f"{keeper.place} exists; name one that does not: the test creates and drops it"


def fill_collection(engine: CollectionEngine, name: str, rows: Tensor) -> Table:
    """Return a table of vectors (N, d) in a new collection, with the row as the id of each."""
    num_rows, dim = rows.shape
    stamp = dataclasses.replace(STAMP, layout=name, num_items=num_rows, component_dim=dim)
    collection = engine.connect()
    collection.drop()
    collection.create(dim, stamp.encode())
    collection.load()
    ids = np.arange(num_rows, dtype=np.int64)
    if num_rows:
        collection.put(ids, ids, np.ascontiguousarray(rows.float().numpy()))
    if num_rows >= WORTH_AN_INDEX:
        collection.finish()
    else:
        collection.stored(0, LARGEST_ID)  # servers let a read wait for every change before it
    every = torch.arange(num_rows)
    collection.close()
    return CollectionTable(engine, stamp, ids=every, rows=every, num_rows=num_rows)


def drop_collection(engine: Engine) -> None:
    """Drop the collection of an engine; engines of tables have none."""
    keeper = as_collection_engine(engine)
    if keeper is not None:
        collection = keeper.connect()
        collection.drop()
        collection.close()


def check_collection(engine: CollectionEngine) -> None:
    """Check that a collection keeps its note, replaces and removes items, and reads them back by ranges of ids."""
    collection = engine.connect()
    try:
        _check_changes(collection)
    finally:
        collection.close()


def _check_changes(collection: Collection) -> None:
    collection.drop()
    assert collection.describe() is None, "a collection that was dropped is still there"
    collection.create(4, "first")
    state = collection.describe()
    assert state is not None, "a collection that was created is not there"
    assert (state.note, state.dim) == ("first", 4), f"a new collection is described as {state}"
    collection.mark(note := '{"second": "it\'s \\"quoted\\""}')
    state = collection.describe()
    assert state is not None, "a collection whose note was replaced is not there"
    assert state.note == note, f"the note is {state.note!r}, not {note!r}"
    collection.load()
    ids = np.array([0, 3, 5, 2**40, LARGEST_ID - 1], dtype=np.int64)
    vectors = np.eye(5, 4, dtype=np.float32)
    collection.put(ids, ids % 7, vectors)
    collection.put(ids[:2], np.array([70, 71]), vectors[2:4])
    collection.remove(np.array([5, 6]))
    collection.finish()
    held, checksums = collection.stored(0, LARGEST_ID)
    assert held.tolist() == [0, 3, 2**40, LARGEST_ID - 1], f"after all changes, the collection holds ids {held}"
    assert checksums[:2].tolist() == [70, 71], "an item that was replaced has its old checksum"
    held, _ = collection.stored(1, 2**40)
    assert held.tolist() == [3, 2**40], f"ids from 1 to 2**40 are returned as {held}"
    found, scores = collection.nearest(vectors[2:3], 2, only=None, without=None)
    assert found[0, 0] == 0, "an item that was replaced is not found by its new vector"
    assert abs(float(scores[0, 0]) - 1.0) < 1e-3, f"an inner product of 1 is returned as {scores[0, 0]}"
