"""Blocks of work on all cores: each block runs on one core from start to end, beside the others.

By default torch spreads every single operation over all cores and waits for the slowest of them, thousands of times
in one search. If another search or process shares a core, those waits take many times longer than the work. A block
that stays on its core waits for no other block and does not share its cache.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from railsearch.kernels.arithmetic import plain_arithmetic

TASKS_PER_CORE = 8


def for_each_block(
    count: int, size: int, work: Callable[[int, int], None], *, device: torch.device, blocks_per_core: int = 1
) -> None:
    """Call work(first, last) for all blocks of `size` of a range, in any order; on a CPU, on all cores that torch uses.

    If there are fewer blocks than `blocks_per_core` for each core, the calling thread does them one after the other,
    and torch spreads each operation over the cores. Gradients are off. An exception in one block is raised after all
    blocks are done.
    """
    blocks = [(first, min(first + size, count)) for first in range(0, count, size)]
    num_threads = torch.get_num_threads()
    if device.type != "cpu" or num_threads == 1 or len(blocks) < max(2, blocks_per_core * num_threads):
        _do(work, blocks)
        return
    # A worker takes a few blocks at a time: fewer hand-overs, and no worker ends much later than the others.
    size = max(1, len(blocks) // (TASKS_PER_CORE * num_threads))
    tasks = [blocks[first : first + size] for first in range(0, len(blocks), size)]
    workers = _workers.with_threads(num_threads)
    futures = [workers.submit(_do, work, task) for task in tasks]
    errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error


def _do(work: Callable[[int, int], None], blocks: list[tuple[int, int]]) -> None:
    with plain_arithmetic():  # a thread does not inherit it
        for first, last in blocks:
            work(first, last)


class _Workers:
    """One worker for each core, shared by all searches of this process, so that they do not compete."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def with_threads(self, num_threads: int) -> ThreadPoolExecutor:
        """Return the workers for callers in whose thread torch uses this many threads."""
        with self._lock:
            if num_threads not in self._pools:
                self._pools[num_threads] = self._start(num_threads)
            return self._pools[num_threads]

    def start_over(self) -> None:
        """Drop the workers of the parent in a forked child, in which they do not run."""
        self._lock = threading.Lock()
        self._pools = {}

    def _start(self, num_threads: int) -> ThreadPoolExecutor:
        are_ready = threading.Barrier(num_threads + 1)

        def start() -> None:
            torch.set_num_threads(1)
            torch.get_num_threads()  # the first call in a thread fixes its number to the one that was set last
            are_ready.wait()

        pool = ThreadPoolExecutor(num_threads, "railsearch", start)
        for _ in range(num_threads):
            pool.submit(int)  # each call starts a worker, because none is idle yet
        are_ready.wait()
        torch.set_num_threads(num_threads)  # the number that later threads start with
        return pool


_workers = _Workers()
os.register_at_fork(after_in_child=_workers.start_over)
