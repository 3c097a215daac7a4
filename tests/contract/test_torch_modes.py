"""Searches under torch's modes: inference mode, reduced precision, autocast, several threads and forked children."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from railsearch import Adaptive, Average, BruteForce, Combined, Index, PerComponent, TwoPass, Weighted
from railsearch.index import Strategy
from railsearch.kernels import TorchKernel, plain_arithmetic
from tests.support.search_worlds import TOLERANCE, make_world

STRATEGIES: tuple[Strategy, ...] = (
    BruteForce(), TwoPass(), Adaptive(), PerComponent(5), Average(50), Combined(5, 50), Weighted(50),
)  # fmt: skip
MODES: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "plain": contextlib.nullcontext,
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.fixture(params=[1, 2])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("num_threads")
@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("outer", ["plain", "inference mode", "autocast"])
@pytest.mark.parametrize("inner", MODES)
def test_changes_in_one_mode_and_searches_in_another(inner: str, outer: str, where: str, tmp_path: Path) -> None:
    similarity, items, queries = make_world("random", 1200, seed=1)
    path = tmp_path / "index" if where == "disk" else None
    expected = Index.build(similarity, items)
    expected.remove([3, 700])
    with MODES[inner]():
        index = Index.build(similarity, items[:1000], path=path)
        index.add(items[1000:])
        index.remove([3, 700])
        if path is not None:
            index.close()
            index = Index.open(path)
        given = queries.clone()  # of inference mode itself, if that is on
    with MODES[outer]():
        for strategy in STRATEGIES:
            found, wanted = index.search(given, 9, strategy), expected.search(queries, 9, strategy)
            torch.testing.assert_close(found.scores, wanted.scores, rtol=0, atol=TOLERANCE)
            assert not found.scores.is_inference()


@pytest.fixture
def precision() -> Iterator[None]:
    """Restore the precision of matrix products."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "none"


def set_everywhere() -> None:
    torch.backends.fp32_precision = "tf32"


def set_for_cuda() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def set_for_cpu() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def set_for_backend() -> None:
    torch.backends.mkldnn.fp32_precision = "bf16"


SETTINGS = {
    "everywhere": set_everywhere,
    "cuda": set_for_cuda,
    "cpu": set_for_cpu,
    "backend": set_for_backend,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
}


def current_precision() -> tuple[str, ...]:
    backends = torch.backends
    return (
        backends.fp32_precision,
        backends.mkldnn.fp32_precision,
        backends.mkldnn.matmul.fp32_precision,
        backends.cuda.matmul.fp32_precision,
    )


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("setting", SETTINGS)
def test_reduced_precision_changes_no_answer_and_is_restored(setting: str) -> None:
    similarity, items, queries = make_world("random", 1200, seed=2)
    index = Index.build(similarity, items)
    expected = [index.search(queries, 9, strategy) for strategy in STRATEGIES]
    SETTINGS[setting]()
    before = current_precision()
    for strategy, wanted in zip(STRATEGIES, expected, strict=True):
        found = index.search(queries, 9, strategy)
        torch.testing.assert_close(found.scores, wanted.scores, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(found.ceiling, wanted.ceiling, rtol=0, atol=TOLERANCE)  # no wider slack
        assert current_precision() == before
    torch.backends.mkldnn.fp32_precision = "none"
    torch.backends.fp32_precision = "ieee"  # what was inherited before follows its parent still
    if setting in ("everywhere", "backend"):
        assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"


@pytest.mark.usefixtures("precision")
def test_precision_is_restored_by_the_last_thread_that_leaves() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    is_inside, may_leave = threading.Event(), threading.Event()
    seen = []

    def stay() -> None:
        with plain_arithmetic():
            is_inside.set()
            may_leave.wait()
            seen.append(torch.backends.mkldnn.matmul.fp32_precision)

    other = threading.Thread(target=stay)
    with plain_arithmetic():
        other.start()
        is_inside.wait()
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"  # the other thread still computes
    may_leave.set()
    other.join()
    assert seen == ["ieee"]
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"


@pytest.mark.usefixtures("precision")
def test_roundoff_is_that_of_the_precision_in_force() -> None:
    kernel = TorchKernel(make_world("dot", 2, seed=0)[0])
    assert kernel.roundoff.relative == 2.0**-24
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    assert kernel.roundoff.relative == 2.0**-8
    with plain_arithmetic():
        assert kernel.roundoff.relative == 2.0**-24


FORK = """
import multiprocessing, os, sys, warnings
import torch
from railsearch import Adaptive, Average, BruteForce, Combined, Index, PerComponent, TwoPass, Weighted
from tests.support.search_worlds import make_world

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any fork beside threads
torch.set_num_threads(2)
similarity, items, queries = make_world("random", 20_000, seed=1)
index = Index.build(similarity, items)
strategies = (BruteForce(), TwoPass(), Adaptive(), PerComponent(5), Average(50), Combined(5, 50), Weighted(50))
expected = [index.search(queries, 9, strategy).scores for strategy in strategies]
torch.randn(2000, 2000).exp()  # threads of OpenMP, besides those of the search


def search():
    return all(
        torch.allclose(index.search(queries, 9, strategy).scores, wanted, rtol=0, atol=5e-3)
        for strategy, wanted in zip(strategies, expected)
    )


def run(_):
    return search() and torch.get_num_threads() == 1


if sys.argv[1] == "fork":
    child = os.fork()
    if not child:
        os._exit(0 if search() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(run, range(4)) == [True] * 4
assert torch.get_num_threads() == 2 and search()  # the parent goes on as before
"""


@pytest.mark.parametrize("way", ["fork", pytest.param("multiprocessing", marks=pytest.mark.slow)])
def test_forked_children_search(way: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    environment.pop("OMP_NUM_THREADS", None)
    completed = subprocess.run(
        [sys.executable, "-c", FORK, way], timeout=900, check=False, env=environment, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
