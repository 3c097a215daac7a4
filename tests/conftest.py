"""Fixtures and settings that every kind of test shares."""

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from railsearch.kernels import native
from railsearch.similarity import Similarity
from tests.support.file_server import serve_files
from tests.support.similarities import KINDS, make_similarity
from tests.support.trials import trials

# Shared machines are too uneven for a deadline. CI repeats the same examples and seeds, so that it never surprises.
IS_CI = bool(os.environ.get("CI"))
SEED_OF_CI = 18
settings.register_profile("railsearch", max_examples=trials(10, 100), deadline=None, derandomize=IS_CI)
settings.load_profile("railsearch")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of pytest-randomly in CI, unless the command line does; the order of tests follows from it."""
    if IS_CI and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = SEED_OF_CI


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every property test as deep: it tries more examples in `make test-all`."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.deep)


def pytest_collection_finish() -> None:
    """Exempt modules and tests from garbage collection, which otherwise walks them during every test."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter", config: pytest.Config) -> None:
    """Print the seed if a test failed, because `-q` hides the header that has it."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        seed = config.getoption("randomly_seed", None)
        terminalreporter.write_line(f"the same order and seeds again: pytest -p randomly --randomly-seed={seed}")


def pytest_unconfigure() -> None:
    """Undo it, so that the end of the process can release everything: nanobind counts what is left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed_torch(pytestconfig: pytest.Config) -> None:
    """Seed torch's global generator, as pytest-randomly seeds those of Python and numpy."""
    torch.manual_seed(int(pytestconfig.getoption("randomly_seed", 0)))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(params=KINDS)
def similarity(request: pytest.FixtureRequest) -> Similarity:
    return make_similarity(request.param)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a server of files on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve_files() as address:
        yield address


@pytest.fixture(scope="module", params=["native", "torch"])
def each_kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with every kernel."""
    if request.param == "native" and not native.is_available():
        pytest.skip("the native kernels are not compiled")
    before = os.environ.get("RAILSEARCH_KERNEL")
    os.environ["RAILSEARCH_KERNEL"] = request.param
    yield request.param
    del os.environ["RAILSEARCH_KERNEL"]
    if before is not None:
        os.environ["RAILSEARCH_KERNEL"] = before
