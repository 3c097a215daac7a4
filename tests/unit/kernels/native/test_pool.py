"""The pool of threads: many searches at once, forks, Ctrl-C and memory that runs out."""

import multiprocessing
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from railsearch.kernels.native import NativeKernel
from railsearch.kernels.native.library import library
from railsearch.similarity import ItemParts
from tests.support.native import bits, forced, make_mixture, make_parts, needs_native

pytestmark = needs_native

MIXTURE = make_mixture(8, 4, 16, 32, ["query", "item", "pair"])
QUERIES, ITEMS = make_parts(MIXTURE, 16, 3000)


def test_eight_threads_search_at_once() -> None:
    kernel = NativeKernel(MIXTURE)
    with forced(num_threads=1):
        scores, rows = kernel.top_k(QUERIES, ITEMS, 7)

    def search(_: int) -> bool:
        found, found_rows = kernel.top_k(QUERIES, ITEMS, 7)
        return torch.equal(bits(found), bits(scores)) and torch.equal(found_rows, rows)

    with forced(num_threads=2), ThreadPoolExecutor(8) as threads:
        assert all(threads.map(search, range(24)))


def _search_in_child(results: "multiprocessing.queues.Queue[list[float]]") -> None:
    torch.set_num_threads(2)
    results.put(NativeKernel(MIXTURE).top_k(QUERIES, ITEMS, 3)[0].flatten().tolist())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_searches() -> None:
    with forced(num_threads=2):
        scores, _ = NativeKernel(MIXTURE).top_k(QUERIES, ITEMS, 3)  # the pool has threads now
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_search_in_child, args=(results,))
    child.start()
    try:
        assert results.get(timeout=60) == scores.flatten().tolist()
    finally:
        child.join(timeout=60)
        child.kill()


def test_ctrl_c_ends_a_search_and_the_next_one_works() -> None:
    many = ItemParts(ITEMS.components.repeat(40, 1, 1), ITEMS.gate.repeat(40, 1))  # takes far longer than 0.2 seconds
    kernel = NativeKernel(MIXTURE)
    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with forced("portable", num_threads=2):
            timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])

            def search_until_ctrl_c() -> None:  # which may come before the search, or between two
                timer.start()
                while True:
                    kernel.score(QUERIES, many, 0, len(many))

            with pytest.raises(KeyboardInterrupt):
                search_until_ctrl_c()
            timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    with forced(num_threads=2):
        assert kernel.score(QUERIES, ITEMS, 0, 100).shape == (16, 100)


def test_memory_that_runs_out_is_a_memory_error() -> None:
    vast = make_mixture(1, 1, 1, 1, [])
    queries, items = make_parts(vast, 1, 5)
    kernel = NativeKernel(vast)
    empty = library.Items(0)
    empty.add(0, 0, 0, 0, 1)
    with pytest.raises(MemoryError):  # tiles of 2^59 values; nothing is read before they are there
        library.scan("portable", 1, 0, 1, 1, 2**57, empty, library.Filter(), 1, 0, 0, 0, 0)
    assert kernel.score(queries, items, 0, 5).shape == (1, 5)
