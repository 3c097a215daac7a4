"""A process that changes an index as it is told: `python -m tests.faults.writer <path> <what>`; see its functions."""

import os
import random
import sys
from collections.abc import Iterator

import torch

from railsearch import Index, ItemBatch
from railsearch.index import changes
from tests.faults.model import DIM, Change, Content, read_content


def drawn(content: Content, count: int) -> Iterator[tuple[Change, Content]]:
    """The same random changes in every process, and what they make of the content."""
    choice = random.Random(8)
    for number in range(1, count + 1):
        change = Change.draw(choice, content, number)
        content = change.applied(content)
        yield change, content


def commit(index: Index, count: str) -> None:
    """Make so many random changes, as fast as can be."""
    changes.SMALL = 4
    for change, _ in drawn(read_content(index), int(count)):
        change.apply(index)


def take_turns(index: Index) -> None:
    """Add an item for each line that is read, and answer with the version."""
    for line in sys.stdin:
        Change("add", (int(line),), 1).apply(index)
        print(index.version, flush=True)


def hold(index: Index) -> None:
    """Begin to add, say so, and wait for a line before going on."""

    def batches() -> Iterator[ItemBatch]:
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        yield ItemBatch(torch.ones(1, DIM), [900], index.metadata[:1])

    index.add(batches())


if __name__ == "__main__":
    torch.set_num_threads(1)
    path, what, *arguments = sys.argv[1:]
    {"commit": commit, "take-turns": take_turns, "hold": hold}[what](Index.open(path), *arguments)
