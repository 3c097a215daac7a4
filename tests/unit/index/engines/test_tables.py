"""Tables of a segment: each is built once, two at the same time if need be, and what fails says whose fault it is."""

import gc
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from railsearch.foundation.errors import EngineError, InvalidInputError
from railsearch.index.engines import FlatTable, Nearest, Tables
from tests.support.engines import AtMost, AtMostTable, Complete


@dataclass(frozen=True)
class Watched(AtMost):
    """An engine that meets others at a barrier while it builds, and writes down what happens."""

    events: list[str] = field(default_factory=list, compare=False)
    barrier: threading.Barrier | None = field(default=None, compare=False)

    def build(self, name: str, vectors: Tensor) -> AtMostTable:
        self.events.append(name)
        if self.barrier is not None:
            self.barrier.wait(timeout=120)
        return WatchedTable(FlatTable(vectors), None, self.events, name)


@dataclass(frozen=True)
class WatchedTable(AtMostTable):
    events: list[str]
    name: str

    def close(self) -> None:
        self.events.append(f"close {self.name}")


@dataclass
class Memory:
    """A place for tables in memory; reading or writing may fail."""

    kept: dict[tuple[str, str], bytes] = field(default_factory=dict)
    is_full: bool = False

    def read(self, name: str, key: str, vectors: Tensor, *, max_bytes: int) -> bytes | None:
        return self.kept.get((name, key))

    def write(self, name: str, key: str, vectors: Tensor, stored: bytes) -> None:
        if self.is_full:
            raise OSError("no space left")
        self.kept[name, key] = stored


def test_two_tables_are_built_at_the_same_time() -> None:
    engine = Watched(None, barrier=threading.Barrier(2))  # a build waits until another one has begun
    tables = Tables()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: tables.get(engine, name, torch.ones(3, 2)), ["a", "b"]))
    assert sorted(engine.events) == ["a", "b"]


def test_one_table_is_built_once_for_all_threads() -> None:
    engine, tables = Watched(None), Tables()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: tables.get(engine, "a", torch.ones(3, 2)), range(64)))
    assert engine.events == ["a"]
    assert len(set(map(id, found))) == 1
    tables.get(Watched(5), "a", torch.ones(3, 2))  # an engine with other settings has tables of its own


def test_a_build_that_fails_is_tried_again() -> None:
    @dataclass(frozen=True)
    class Failing(AtMost):
        errors: list[Exception] = field(default_factory=list, compare=False)

        def build(self, name: str, vectors: Tensor) -> AtMostTable:
            if self.errors:
                raise self.errors.pop()
            return super().build(name, vectors)

    tables = Tables()
    engine = Failing(9, [InvalidInputError("not so"), ZeroDivisionError("of mine")])
    with pytest.raises(EngineError, match=r"AtMost\(9\) failed to build a table \(ZeroDivisionError: of mine\)"):
        tables.get(engine, "a", torch.ones(3, 2))
    with pytest.raises(InvalidInputError, match="not so"):
        tables.get(engine, "a", torch.ones(3, 2))
    assert tables.get(engine, "a", torch.ones(3, 2)).best(torch.ones(1, 1, 2), 2, None).rows.tolist() == [[[0, 1]]]


def test_a_forked_child_does_not_wait_for_a_build_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, vectors = Tables(), torch.ones(3, 2)
    engine = Watched(None, barrier=threading.Barrier(2))
    parent = threading.Thread(target=tables.get, args=(engine, "a", vectors))
    parent.start()
    while not engine.events:  # the build has begun, and waits for the second
        parent.join(timeout=0.001)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    tables.get(engine, "a", vectors)
    parent.join(timeout=120)
    assert engine.events == ["a", "a"]


def test_tables_are_closed_and_built_again() -> None:
    engine, tables = Watched(None), Tables()
    tables.get(engine, "a", torch.ones(3, 2))
    tables.close()
    tables.close()
    tables.get(engine, "a", torch.ones(3, 2))
    assert engine.events == ["a", "close a", "a"]
    del tables
    gc.collect()
    assert engine.events == ["a", "close a", "a", "close a"]


@pytest.mark.parametrize("fault", ["outside", "int32", "short"])
def test_an_answer_of_the_wrong_form_is_the_fault_of_the_engine(fault: str) -> None:
    table = Tables().get(Complete(fault), "a", torch.randn(9, 2, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(EngineError, match=r"Complete\(\) returned (row|torch)"):
        table.best(torch.ones(1, 1, 2), 3, None)


def test_an_error_in_a_search_is_the_fault_of_the_engine() -> None:
    @dataclass(frozen=True)
    class Crashing(AtMost):
        def build(self, name: str, vectors: Tensor) -> "Crash":
            return Crash(FlatTable(vectors), None)

    class Crash(AtMostTable):
        def best(self, vectors: Tensor, n: int, row_filter: object) -> Nearest:
            raise KeyError("lost")

    table = Tables().get(Crashing(None), "a", torch.ones(3, 2))
    with pytest.raises(EngineError, match=r"failed to search a table \(KeyError: 'lost'\)"):
        table.best(torch.ones(1, 1, 2), 3, None)
    with pytest.raises(EngineError, match="failed to search a table by threshold"):
        table.above(torch.ones(1, 1, 2), torch.zeros(1), None)


def test_a_stored_table_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    store, vectors = Memory(), torch.ones(3, 2)
    Tables(store).get(Complete(), "a", vectors)
    monkeypatch.setattr(Complete, "build", None)
    assert Tables(store).get(Complete(), "a", vectors).best(torch.ones(1, 1, 2), 1, None).rows.tolist() == [[[0]]]


def test_a_cache_that_fails_costs_time_only(caplog: pytest.LogCaptureFixture) -> None:
    vectors = torch.ones(3, 2)
    store = Memory({("a", "Complete()"): b"wrong"})
    with caplog.at_level(logging.WARNING):
        Tables(store).get(Complete(), "a", vectors)
    assert "cannot be opened" in caplog.text
    assert store.kept["a", "Complete()"] != b"wrong"  # built again and kept
    with caplog.at_level(logging.WARNING):
        Tables(Memory(is_full=True)).get(Complete(), "a", vectors)
    assert "is not kept on disk: no space left" in caplog.text


def test_an_engine_that_is_not_persistent_stores_nothing() -> None:
    store = Memory()
    Tables(store).get(AtMost(None), "a", torch.ones(3, 2))
    assert store.kept == {}
