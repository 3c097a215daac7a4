"""Blocks of work on all cores: each done once, errors raised, and torch left as it was."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from railsearch.kernels import for_each_block

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 3])
def num_threads(request: pytest.FixtureRequest) -> int:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_block_is_done_once(num_threads: int) -> None:
    for count, size in ((0, 4), (1, 4), (4, 4), (103, 4), (5, 100)):
        done = torch.zeros(count)
        threads = set()

        def work(first: int, last: int, done: torch.Tensor = done, threads: set[str] = threads) -> None:
            assert not torch.is_grad_enabled()
            threads.add(threading.current_thread().name)
            done[first:last] += 1

        for_each_block(count, size, work, device=CPU)
        assert bool((done == 1).all())
        assert len(threads) <= num_threads


def test_torch_is_left_as_it_was(num_threads: int) -> None:
    seen = []
    for_each_block(8, 1, lambda first, last: seen.append(torch.get_num_threads()), device=CPU)
    assert seen == [1] * 8  # a block has a core to itself
    assert torch.get_num_threads() == num_threads
    assert torch.is_grad_enabled()
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen[-1] == num_threads


def test_an_error_in_a_block_is_raised(num_threads: int) -> None:
    def work(first: int, last: int) -> None:
        if first == 6:
            raise ZeroDivisionError("in block 6")

    with pytest.raises(ZeroDivisionError, match="in block 6"):
        for_each_block(10, 2, work, device=CPU)
    done = []
    for_each_block(10, 2, lambda first, last: done.append(first), device=CPU)
    assert sorted(done) == [0, 2, 4, 6, 8]


def test_many_callers_at_once() -> None:
    totals = torch.zeros(6)

    def call(place: int) -> None:
        def work(first: int, last: int) -> None:
            for number in range(first, last):
                results[number] = number

        results = torch.zeros(200)
        for _ in range(20):
            for_each_block(200, 7, work, device=CPU)
        totals[place] = results.sum()

    callers = [threading.Thread(target=call, args=(place,)) for place in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert totals.tolist() == [19900.0] * 6


def test_a_forked_child_has_workers_of_its_own() -> None:
    code = """
import os, sys, torch
torch.set_num_threads(2)
from railsearch.kernels import for_each_block
done = []
for_each_block(8, 1, lambda first, last: done.append(first), device=torch.device("cpu"))
child = os.fork()
if not child:
    for_each_block(8, 1, lambda first, last: done.append(first), device=torch.device("cpu"))
    os._exit(0 if sorted(done) == sorted([*range(8), *range(8)]) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    completed = subprocess.run([sys.executable, "-c", code], timeout=600, check=False, env={**os.environ})
    assert completed.returncode == 0
