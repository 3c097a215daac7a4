"""Blocks of work on all cores: each block runs on one core from start to end, beside the others.

Left to itself, torch spreads every single operation over all cores and waits for the slowest of them, thousands of
times a search. Where a core is shared with anything else, another search for example, those waits add up to many times
the work itself. A block that stays on its core waits for nobody, and keeps its cache to itself.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from railsearch.kernels.arithmetic import plain_arithmetic

TASKS_PER_CORE = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_num_workers = 0


def for_each_block(
    count: int, size: int, work: Callable[[int, int], None], *, device: torch.device, blocks_per_core: int = 1
) -> None:
    """Call work(first, last) for all blocks of `size` of a range, in any order; on a CPU, on all cores that torch uses.

    With fewer blocks than `blocks_per_core` for each core there is little to share out: they are done here, one after
    the other, and each operation on all cores. Gradients are off in there. An exception in one block is raised here,
    when all are done.
    """
    blocks = [(first, min(first + size, count)) for first in range(0, count, size)]
    num_threads = torch.get_num_threads()
    if device.type != "cpu" or num_threads == 1 or len(blocks) < max(2, blocks_per_core * num_threads):
        with plain_arithmetic():
            for first, last in blocks:
                work(first, last)
        return
    # A worker takes a few blocks at a time: they hand over less often, and none ends much later than the others.
    size = max(1, len(blocks) // (TASKS_PER_CORE * num_threads))
    tasks = [blocks[first : first + size] for first in range(0, len(blocks), size)]
    futures = [_workers(num_threads).submit(_do, work, task) for task in tasks]
    errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error


def _do(work: Callable[[int, int], None], blocks: list[tuple[int, int]]) -> None:
    with plain_arithmetic():  # which a thread does not inherit
        for first, last in blocks:
            work(first, last)


def _workers(num_threads: int) -> ThreadPoolExecutor:
    """One worker a core, shared by all searches of this process, so that many at once do not crowd each other out."""
    global _pool, _num_workers
    with _lock:
        if _pool is None or _num_workers != num_threads:
            if _pool is not None:
                _pool.shutdown(wait=False)
            are_ready = threading.Barrier(num_threads + 1)

            def start() -> None:
                torch.set_num_threads(1)
                torch.get_num_threads()  # a thread that asks for the first time takes the number set last, for good
                are_ready.wait()

            _pool, _num_workers = ThreadPoolExecutor(num_threads, "railsearch", start), num_threads
            for _ in range(num_threads):
                _pool.submit(int)  # a worker is started for each, as none is idle yet
            are_ready.wait()
            torch.set_num_threads(num_threads)  # what threads that are started later begin with
        return _pool


def _forget() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)  # threads do not live on in a child
