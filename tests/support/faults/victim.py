"""A process whose children change an index until they are killed; test_kill.py runs it and sends requests to stdin.

Each request is a line of JSON. A child is forked for it, since importing torch takes longer than the whole trial. The
answer is a line with the child's exit code. Children write each change that they begin,
and each that was acknowledged, to a log that is synced.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import polars as pl  # noqa: F401  (once, here, and not in each child)
import torch

from railsearch import Index
from railsearch.index import changes
from tests.support.faults.model import FIRST, Change, read_content
from tests.support.faults.steps import watched

LARGEST_NUMBER = 10_000


def main() -> None:
    """Answer requests until stdin ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        ready, is_ready = os.pipe()
        child = os.fork()
        if child == 0:
            run(is_ready, **request["task"])
        os.close(is_ready)
        if request["delay"] is not None:
            os.read(ready, 1)
            time.sleep(request["delay"])
            os.kill(child, signal.SIGKILL)
        os.close(ready)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(is_ready: int, *, log: str, **task: object) -> None:
    """Do the task in this child process, then end it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        work(descriptor, is_ready, **task)  # type: ignore[arg-type]
    except BaseException:
        os.write(descriptor, traceback.format_exc().encode())
        os._exit(1)
    os._exit(0)


def work(log: int, is_ready: int, *, path: str, seed: int, small: int, change: list | None, step: int | None) -> None:
    """Make one change, or random ones without end; the process kills itself before a step, or its parent does."""
    changes.SMALL = small
    index = None if change == ["build"] else Index.open(path)
    choice = random.Random(seed)
    content = {} if index is None else read_content(index)
    os.write(is_ready, b"!")
    for number in itertools.count(1) if change is None else [LARGEST_NUMBER]:
        if change is None:
            chosen = Change.draw(choice, content, number)
        else:
            chosen = FIRST if index is None else Change(change[0], tuple(change[1]), number)
        tell(log, state="begun", kind=chosen.kind, ids=chosen.ids, number=number)
        count = itertools.count()

        def on_step(name: str, tear, count=count) -> None:
            if next(count) == step:
                tear()
                os.kill(os.getpid(), signal.SIGKILL)

        with watched(on_step):
            if index is None:
                index = chosen.build(Path(path))
            else:
                chosen.apply(index)
        tell(log, state="acknowledged", version=index.version)
        content = chosen.applied(content)


def tell(log: int, **line: object) -> None:
    """Write a line that survives the end of this process, and a power failure."""
    os.write(log, json.dumps(line).encode() + b"\n")
    os.fsync(log)


if __name__ == "__main__":
    main()
