"""Servers that the tests of engines share: each starts once, for the whole run."""

from collections.abc import Iterator

import pytest

from tests.support.servers import Server, running_milvus, running_postgres


@pytest.fixture(scope="session")
def milvus() -> Iterator[Server]:
    with running_milvus() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_postgres() as server:
        yield server
