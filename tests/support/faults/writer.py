"""A process that changes indexes on request: a line of JSON on stdin names the path and one of these functions."""

import json
import os
import random
import sys
from collections.abc import Iterator

import torch

from railsearch import Index, ItemBatch
from railsearch.index import changes
from tests.support.faults.model import DIM, Change, Content, read_content


def drawn(content: Content, count: int) -> Iterator[tuple[Change, Content]]:
    """Yield the same random changes in every process, each with the content that it leads to."""
    choice = random.Random(8)
    for number in range(1, count + 1):
        change = Change.draw(choice, content, number)
        content = change.applied(content)
        yield change, content


def commit(index: Index, count: int) -> None:
    """Make `count` random changes as fast as possible."""
    changes.SMALL = 4
    for change, _ in drawn(read_content(index), count):
        change.apply(index)


def add(index: Index, item: int) -> None:
    """Add one item."""
    Change("add", (item,), 1).apply(index)


def hold(index: Index, item: int) -> None:
    """Begin to add an item, report it, and wait for a line on stdin before the commit."""

    def batches() -> Iterator[ItemBatch]:
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        yield ItemBatch(torch.ones(1, DIM), [item], index.metadata[:1])

    index.add(batches())


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        path, what, number = json.loads(line)
        with Index.open(path) as opened:
            {"commit": commit, "add": add, "hold": hold}[what](opened, number)
            print(opened.version, flush=True)
