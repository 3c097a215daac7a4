"""Milvus and PostgreSQL as first stages: recall, sync, filters, failures and credentials, against the real servers."""

import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from railsearch import Average, Combined, Index, MixtureOfLogits, PerComponent, Weighted
from railsearch.data import make_world
from railsearch.engines import Milvus, Postgres, sync_engine
from railsearch.errors import EngineError
from railsearch.index.engines.collection import LARGEST_ID
from railsearch.index.syncing import ITEMS_PER_RANGE
from railsearch.testing import check_engine
from railsearch.testing.collections import drop_collection
from tests.support.commands import run_main
from tests.support.servers import Server

pytestmark = pytest.mark.services
Keeper = Milvus | Postgres
STRATEGIES = [Average(200), PerComponent(20), Combined(10, 200), Weighted(200)]


@dataclass(frozen=True)
class Place:
    """A server, how engines that use it are made, and the secret that must not be seen."""

    server: Server
    make: Callable[..., Keeper]
    engine_text: str
    secret: str
    careful: dict[str, object]
    """Settings with which a search of few items misses none."""


@pytest.fixture(params=["milvus", "postgres"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    server: Server = request.getfixturevalue(request.param)
    if request.param == "milvus":
        monkeypatch.setenv("MILVUS_TOKEN", server.token)
        text = f"Milvus({server.address}, {{}}, token_env=MILVUS_TOKEN, kind=flat)"
        secret = server.token.split(":")[1]

        def make_milvus(name: str, **settings: object) -> Keeper:
            return Milvus(server.address, name, token_env="MILVUS_TOKEN", **settings)  # type: ignore[arg-type]

        return Place(server, make_milvus, text, secret, {"kind": "flat"})
    monkeypatch.setenv("RAILSEARCH_POSTGRES", f"{server.address} password={server.token}")
    return Place(server, Postgres, "Postgres({}, effort=1000)", server.token, {"effort": 1000})


@pytest.fixture
def folder(tmp_path: Path, generator: torch.Generator) -> Path:
    similarity = MixtureOfLogits(
        query_dim=8, item_dim=8, num_query_components=3, num_item_components=4, component_dim=8, gate_dim=4, seed=0
    )
    path = tmp_path / "items.index"
    index = Index.build(
        similarity, torch.randn(900, 8, generator=generator), ids=[f"sku-{row}" for row in range(900)], path=path
    )
    index.remove(["sku-7", "sku-8"])
    return path


def recall(found: torch.Tensor, truth: torch.Tensor) -> float:
    pairs = zip(found.tolist(), truth.tolist(), strict=True)
    return sum(len(set(own) & set(true)) for own, true in pairs) / truth.numel()


def test_engines_keep_the_contract(place: Place) -> None:
    check_engine(place.make("contract"))


def test_halves_keep_the_contract(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAILSEARCH_POSTGRES", f"{postgres.address} password={postgres.token}")
    check_engine(Postgres("halves", column="halfvec"))


def test_every_strategy_finds_what_a_scan_finds(place: Place, tmp_path: Path) -> None:
    world = make_world(num_users=64, num_items=6000, num_interests=2, num_aspects=4, taste_dim=8)
    plain = Index.build(world.truth, world.item_embeddings, path=tmp_path / "world.index")
    engine = place.make("world", effort=400)
    assert sync_engine(plain, engine).num_written == 6000
    index = Index.open(tmp_path / "world.index", engine=engine)
    for strategy in STRATEGIES:
        found = index.search(world.query_embeddings, 10, strategy)
        expected = plain.search(world.query_embeddings, 10, strategy)
        assert recall(found.ids, expected.ids) >= 0.95, strategy
        assert not found.is_exact.any()
        assert bool((found.ceiling == torch.inf).all())
    index.close()
    drop_collection(engine)


def test_a_flat_index_of_milvus_finds_what_a_scan_finds(
    milvus: Server, folder: Path, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", milvus.token)
    engine = Milvus(milvus.address, "flat", token_env="MILVUS_TOKEN", kind="flat")
    plain = Index.open(folder)
    sync_engine(plain, engine)
    index = Index.open(folder, engine=engine)
    queries = torch.randn(6, 8, generator=generator)
    for strategy in STRATEGIES:
        found = index.search(queries, 10, strategy)
        assert recall(found.ids, plain.search(queries, 10, strategy).ids) >= 0.98, strategy  # candidates may tie
        assert not found.is_exact.any()
    index.close()
    drop_collection(engine)


def test_a_collection_follows_its_index(place: Place, folder: Path, generator: torch.Generator) -> None:
    engine = place.make("followed", **place.careful)
    plain = Index.open(folder)
    with pytest.raises(EngineError, match=r"'followed' .* does not exist; bring it up to date"):
        Index.open(folder, engine=engine)
    assert sync_engine(plain, engine).num_written == 898
    assert sync_engine(plain, engine).num_written == 0
    index = Index.open(folder, engine=engine)
    queries = torch.randn(4, 8, generator=generator)
    wanted = plain.search(queries, 5, Average(100)).keys
    assert index.search(queries, 5, Average(100)).keys == wanted
    best = wanted[0][0]
    assert best is not None
    hidden = index.search(queries, 5, Average(100), exclude=[[best]] * 4)
    assert best not in [key for keys in hidden.keys for key in keys]
    few = index.keys[:30]
    assert all(key in few for keys in index.search(queries, 5, Average(20), allow=few).keys for key in keys)
    assert all(
        key not in few for keys in index.search(queries, 5, Average(20), allow=index.keys[30:]).keys for key in keys
    )
    index.remove([best])
    index.upsert(queries[:1] * 3, ids=["sku-new"])
    with pytest.raises(EngineError, match="holds version 2 of this index but version 4 is open"):
        index.search(queries, 5, Average(100))
    report = sync_engine(index, engine)
    assert (report.num_written, report.num_removed, report.num_unchanged) == (1, 1, 897)
    found = index.search(queries, 5, Average(100)).keys
    assert found == Index.open(folder).search(queries, 5, Average(100)).keys
    index.compact()
    assert sync_engine(index, engine).num_written == 0
    index.tune(torch.randn(40, 8, generator=generator), 5, target_recall=0.5, show_progress=False)
    index.search(queries, 5)
    other = Index.build(plain.similarity, torch.randn(20, 8), path=folder.with_name("other.index"))
    with pytest.raises(EngineError, match="holds another index"):
        sync_engine(other, engine)
    index.close()
    drop_collection(engine)


KILLED_AFTER_THE_FIRST_RANGE = """
import os, signal
from railsearch.cli import main
from railsearch.index import syncing

update_range = syncing._Writer.update_range

def update_or_die(writer, corpus, first, last):
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    update_range(writer, corpus, first, last)

syncing._Writer.update_range = update_or_die
main()
"""


def test_a_sync_that_was_killed_goes_on(place: Place, tmp_path: Path, generator: torch.Generator) -> None:
    similarity = MixtureOfLogits(
        query_dim=8, item_dim=8, num_query_components=2, num_item_components=4, component_dim=16, gate_dim=4, seed=0
    )
    path, num_items = tmp_path / "large.index", 20_000
    index = Index.build(similarity, torch.randn(num_items, 8, generator=generator), path=path)
    engine = place.make("killed")
    command = [sys.executable, "-c", KILLED_AFTER_THE_FIRST_RANGE, "engine", "sync", str(path), "--engine"]
    killed = subprocess.run([*command, place.engine_text.format("killed")], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    collection = engine.connect()
    collection.load()
    with pytest.raises(EngineError, match="has not finished"):
        Index.open(path, engine=engine)
    report = sync_engine(index, engine)
    assert report.num_written == num_items - ITEMS_PER_RANGE  # what was written before is kept
    ids, _ = collection.stored(0, LARGEST_ID)
    assert ids.tolist() == list(range(num_items))
    Index.open(path, engine=engine).close()
    collection.drop()
    collection.close()


def test_a_server_that_goes_away_is_named(
    place: Place, folder: Path, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = place.make("gone", timeout=60.0)
    sync_engine(Index.open(folder), engine)
    queries = torch.randn(1, 8, generator=generator)
    with place.server.until_it_goes_away() as address:
        if isinstance(engine, Milvus):
            engine = replace(engine, uri=address)
        else:
            monkeypatch.setenv("RAILSEARCH_POSTGRES", f"{address} password={place.server.token}")
        index = Index.open(folder, engine=engine)
        index.search(queries, 5, Average(50))
    object.__setattr__(engine, "timeout", 2.0)  # now that it is gone, there is no need to wait for long
    for _ in range(2):
        with pytest.raises(EngineError, match=r"'gone' .* failed to .*; check that the server runs") as caught:
            index.search(queries, 5, Average(50))
        assert place.secret not in "".join(traceback.format_exception(caught.value))
    assert len(index.search(queries, 5).ids) == 1  # brute force needs no server


def test_the_command_line_syncs_and_searches(
    place: Place, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "queries.npy", np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32))
    text = place.engine_text.format("commanded")

    def run(*arguments: str, code: int = 0) -> str:
        assert run_main(*arguments) == code
        shown = capsys.readouterr()
        assert place.secret not in shown.out + shown.err
        return shown.out if code == 0 else shown.err

    search = ["search", str(folder), "--queries", str(tmp_path / "queries.npy"), "-k", "3", "--strategy", "Average(50)"]
    assert "bring it up to date with `railsearch engine sync`" in run(*search, "--engine", text, code=2)
    if isinstance(place.make("commanded"), Milvus):
        flags = ["--engine", "milvus(kind=flat)", "--uri", place.server.address, "--token-env", "MILVUS_TOKEN"]
    else:
        flags = ["--engine", "postgres"]
    done = json.loads(run("engine", "sync", str(folder), *flags, "--collection", "commanded", "--json"))
    assert (done["num_written"], done["num_removed"], done["version"]) == (898, 0, 2)
    found = json.loads(run(*search, "--engine", text, "--json"))
    plain = json.loads(run(*search, "--json"))
    assert [each["items"] for each in found["queries"]] == [each["items"] for each in plain["queries"]]
    assert not any(each["is_exact"] for each in found["queries"])
    drop_collection(place.make("commanded"))


def test_no_credential_is_stored_shown_or_logged(
    place: Place, folder: Path, generator: torch.Generator, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    engine = place.make("secretive", behind="allow")
    index = Index.open(folder)
    sync_engine(index, engine)
    searched = Index.open(folder, engine=engine)
    searched.tune(torch.randn(40, 8, generator=generator), 5, target_recall=0.5, show_progress=False)
    searched.remove(["sku-1"])
    searched.search(torch.randn(1, 8, generator=generator), 5, Average(50))  # behind: it warns
    collection = engine.connect()
    state = collection.describe()
    collection.drop()
    collection.close()
    texts = [repr(engine), engine.key, str(searched.describe()), repr(searched), caplog.text, repr(state)]
    wrong = "wrong" + os.urandom(8).hex()
    if isinstance(engine, Milvus):
        monkeypatch.setenv("MILVUS_TOKEN", f"root:{wrong}")
    else:
        monkeypatch.setenv("RAILSEARCH_POSTGRES", f"{place.server.address} password={wrong}")
    with pytest.raises(EngineError, match="failed to connect") as caught:
        engine.check_available()
    texts.append("".join(traceback.format_exception(caught.value)))
    if isinstance(engine, Postgres):
        monkeypatch.setenv("RAILSEARCH_POSTGRES", f"not a string {wrong}")
        with pytest.raises(EngineError, match="cannot be read") as caught:
            engine.check_available()
        texts.append("".join(traceback.format_exception(caught.value)))
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    for secret in (place.secret, wrong):
        assert not [text for text in texts if secret in text]
        assert not [content for content in files if secret.encode() in content]
