"""Folders that a stranger wrote: refused by name or answered rightly, and nothing outside them is touched."""

import collections
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Index, IndexFolderError, save_similarity
from railsearch.index import changes
from railsearch.index.storage.manifest import seal
from tests.support.faults.model import read_manifest
from tests.support.faults.mutations import reseal_index
from tests.support.similarities import make_similarity
from tests.support.trials import trials

ROOT = Path(__file__).parents[2]
SECONDS_PER_MUTATION = 30
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of several versions and segments with a gate and metadata, a model, and files that are not ours."""
    world = tmp_path_factory.mktemp("hostile")
    generator = torch.Generator().manual_seed(0)

    def some(*ids: int) -> dict:
        names = pl.DataFrame({"name": [f"item {item}" for item in ids], "year": [1900 + item for item in ids]})
        return {"items": torch.randn(len(ids), 6, generator=generator), "ids": list(ids), "metadata": names}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "SMALL", 0)
        with Index.build(make_similarity("mixture"), **some(*range(9)), path=world / "index") as index:
            index.add(**some(10, 11, 12))
            index.remove([3, 11])
            index.upsert(**some(4, 20, 21))
    save_similarity(make_similarity("mixture"), world / "model")
    (world / "canaries").mkdir()
    for name in ("0" * 32 + ".safetensors", "notes.txt", "CURRENT", "x.tmp", "0" * 32 + ".arrow", "00000001.json"):
        (world / "canaries" / name).write_text(f"not yours: {name}")
    return world


@pytest.fixture
def copy(world: Path, tmp_path: Path) -> Path:
    """A copy of the index, beside files that are not its own."""
    import shutil

    shutil.copytree(world / "index", tmp_path / "index")
    shutil.copytree(world / "canaries", tmp_path / "canaries")
    return tmp_path / "index"


def canaries(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((file.name, file.read_bytes()) for file in (folder.parent / "canaries").iterdir())


def test_mutations(world: Path, say: Callable[[str], None]) -> None:
    """The fuzz test: one process with a limit on memory opens many mutated folders."""
    count = trials(120, 10_000)
    request = {"folder": str(world), "seed": 11, "first": 0, "last": count}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.faults.hostile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.close()
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    bad = []
    for number, line in enumerate(answers_of(process)):
        answer = json.loads(line)
        assert answer["number"] == number
        outcomes[answer["what"], answer["outcome"]] += 1
        if answer["outcome"] not in {"refused", "answered"}:
            bad.append(answer)
    assert process.wait() == 0, f"the process ended with {process.returncode} at mutation {outcomes.total()}"
    assert outcomes.total() == count
    assert not bad, "\n\n".join(f"{len(bad)} bad: {answer}" for answer in bad[:5])
    assert all(outcomes[what, outcome] for what in ("index", "model") for outcome in ("refused", "answered"))
    said = ", ".join(f"{what} {outcome} {count}" for (what, outcome), count in sorted(outcomes.items()))
    say(f"hostile folders: {count} resealed mutations, none crashed, hung or touched a file outside ({said})")


def answers_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Give the lines of a process; end it if none comes for long."""
    assert process.stdout is not None
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        process.kill()

    while True:
        timer = threading.Timer(10 * SECONDS_PER_MUTATION, stop)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        assert not is_late.is_set(), "a mutation hangs"
        if not line:
            return
        yield line
