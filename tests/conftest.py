"""Fixtures and settings that every kind of test shares."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # each worker has one core; read when torch is imported, here and in children

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from railsearch.similarity import Similarity
from tests.support.file_server import serve_files
from tests.support.similarities import KINDS, make_similarity

# Shared machines are too uneven for a deadline. CI repeats the same examples, so that it never surprises.
settings.register_profile("railsearch", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("railsearch")


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
