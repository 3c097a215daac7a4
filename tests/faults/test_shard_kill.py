"""A process that ends between commits of shards: readers keep their snapshot, and the next change starts from it."""

import subprocess
import sys
from pathlib import Path

import pytest

from railsearch import Index
from railsearch.distributed import ShardedIndex
from tests.support.split_worlds import make_split


@pytest.mark.slow
def test_a_process_that_ends_between_commits_of_shards(tmp_path: Path) -> None:
    split = make_split(tmp_path, 3)
    path = split.path
    ids = split.ids.tolist()
    split.close()
    del split

    def run(num_commits: int) -> int:
        command = [sys.executable, "-m", "tests.support.faults.shard_victim", str(path), str(num_commits), "100"]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode

    version = 1
    for num_commits in (0, 1, 2, 2, 1, 2, 2):  # no process has the first snapshot open between them
        assert run(num_commits) == 9
        with ShardedIndex.open(path) as reader:
            assert reader.version == version
            assert reader.ids.tolist() == ids
    assert run(4) == 9  # all have added, and the first has removed
    with ShardedIndex.open(path) as reader:
        assert reader.version == version + 1
        assert reader.ids.tolist() == [*ids, *range(100, 120)]
        reader.remove(list(range(100, 120)))  # finishes it
        assert reader.ids.tolist() == ids
        assert all(Index.check(path / f"shard-{number:05d}").is_intact for number in range(3))
    assert run(100) == 0
    with ShardedIndex.open(path) as reader:
        assert reader.ids.tolist() == ids
