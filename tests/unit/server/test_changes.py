"""Changes by requests: a job and a write of one server do not get in each other's way."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch.foundation.results import ItemBatch, ItemBatches
from railsearch.index import Index
from railsearch.index.tuning import TuningReport
from railsearch.server import changes
from railsearch.server.exchange import Request
from railsearch.server.jobs import State
from railsearch.server.service import ServerSettings, Service
from tests.support.served import DIM, make_index, make_queries


def test_a_tuning_is_stored_after_the_write_that_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(tmp_path / "movies.index", 300)
    service = Service([tmp_path / "movies.index"], settings=ServerSettings(is_writable=True))
    service.open()
    is_locked, may_end, is_measured = threading.Event(), threading.Event(), threading.Event()

    def write_slowly(index: Index) -> None:
        def batches() -> Iterator[ItemBatch]:
            is_locked.set()
            may_end.wait(60)
            yield ItemBatch(torch.ones(1, DIM), [1000], pl.DataFrame({"title": ["New"], "year": [2000]}))

        index.add(ItemBatches(batches(), 1), show_progress=False)

    def measure(*given: object, **named: object) -> TuningReport:
        report = measure_strategies(*given, **named)
        is_measured.set()
        return report

    measure_strategies = changes.measure_strategies
    monkeypatch.setattr(changes, "measure_strategies", measure)
    writer = threading.Thread(target=lambda: service.indexes["movies"].change(write_slowly))
    writer.start()
    assert is_locked.wait(60)
    body = json.dumps({"embeddings": make_queries(100), "k": 3, "target_recall": 0.1}).encode()
    request = Request(body, {"content-type": "application/json"}, {}, asyncio.Event().wait)
    asyncio.run(changes.tune(service, request, "movies"))
    (job,) = service.jobs
    assert is_measured.wait(60)
    service.jobs.wait(0.2)
    assert job.state is State.RUNNING
    may_end.set()
    service.jobs.wait(60)
    writer.join()
    assert (job.state, job.problem) == (State.DONE, None)
    current = service.indexes["movies"].current
    assert (current.version, len(current), list(current.contents.tuned)) == (3, 301, ["k = 3, Flat()"])
    service.close()
