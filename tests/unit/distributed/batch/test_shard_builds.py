"""Shards that a runner builds: the split index is the same, and a second run builds what is missing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from railsearch import Index, ItemBatch, MixtureOfLogits
from railsearch.distributed import ShardedIndex, build_shards
from railsearch.distributed.batch import LocalRunner, build_with
from railsearch.distributed.batch.runners import Task
from railsearch.errors import InvalidInputError
from tests.support.batch_worlds import DIM, NUM_ITEMS, InterruptedJobError, StoppingRunner, make_items


class Recording(LocalRunner):
    """A runner that remembers which shards were not there before."""

    def __init__(self) -> None:
        self.built: list[int] = []

    def run(self, task: Task, numbers: range, on_done: Callable[[int], None]) -> None:
        self.built += [number for number in numbers if not task.is_done(number)]
        super().run(task, numbers, on_done)


def stream() -> Iterator[ItemBatch]:
    items = make_items()
    return iter([ItemBatch(items[:40]), ItemBatch(items[40:])])


def build(path: Path, runner: object, **options: object) -> ShardedIndex:
    similarity = MixtureOfLogits(query_dim=DIM, item_dim=DIM, num_query_components=2, seed=0)
    run = build_with(runner, show_progress=False, **options)
    return ShardedIndex.open(build_shards(similarity, stream, path, 3, name="items", run=run))


def test_shards_are_those_of_one_index(tmp_path: Path) -> None:
    runner = Recording()
    shards = build(tmp_path / "shards", runner)
    assert (runner.built, len(shards)) == ([0, 1, 2], NUM_ITEMS)
    similarity = MixtureOfLogits(query_dim=DIM, item_dim=DIM, num_query_components=2, seed=0)
    whole = Index.build(similarity, make_items())
    queries = np.random.default_rng(2).normal(size=(5, DIM)).astype(np.float32)
    found, expected = shards.search(queries, 7), whole.search(queries, 7)
    assert found.ids.tolist() == expected.ids.tolist()
    assert torch.allclose(found.scores, expected.scores, atol=1e-6)


def test_a_second_run_builds_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InterruptedJobError):
        build(tmp_path / "shards", StoppingRunner(2))
    runner = Recording()
    assert len(build(tmp_path / "shards", runner)) == NUM_ITEMS
    assert runner.built == [2]


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "items.npy").write_bytes(b"old")

    class Changing(LocalRunner):
        def run(self, task: Task, numbers: range, on_done: Callable[[int], None]) -> None:
            super().run(task, numbers, on_done)
            (tmp_path / "items.npy").write_bytes(b"newer")

    with pytest.raises(InvalidInputError, match=r"items\.npy was changed while the job was running"):
        build(tmp_path / "shards", Changing(), files=[tmp_path / "items.npy"])
    assert not (tmp_path / "shards" / "shards.json").exists()
