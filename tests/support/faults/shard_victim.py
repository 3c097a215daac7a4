"""A process that changes a split index, and ends without notice before the n-th commit of a shard."""

import os
import sys
from collections.abc import Sequence

import torch

from railsearch.distributed import Call, LocalWorkers, ShardedIndex
from tests.support.split_worlds import numbered


class Suicidal(LocalWorkers):
    """Workers in this process, which end it before a commit."""

    num_left = 0

    def ask(self, calls: Sequence[Call]) -> list[object]:
        answers = []
        for call in calls:
            if call.method in ("put", "remove"):
                if self.num_left == 0:
                    os._exit(9)
                self.num_left -= 1
            answers += super().ask([call])
        return answers


if __name__ == "__main__":
    path, num_commits, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    index = ShardedIndex.open(path)
    assert isinstance(index.workers, LocalWorkers)
    index.workers.__class__ = Suicidal
    Suicidal.num_left = num_commits
    index.add(torch.ones(20, 6), list(range(first, first + 20)), metadata=numbered(20))
    index.remove(list(range(first, first + 20)))
    print("done")
