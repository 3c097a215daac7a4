"""Tables that are kept with an index folder: the next process opens them, and nothing depends on them."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from railsearch import Average, BruteForce, DotProduct, Faiss, Flat, Index, PerComponent
from railsearch.foundation.errors import EngineError
from railsearch.index.engines import Table
from tests.support.engines import AtMost, AtMostTable
from tests.support.search_worlds import make_world

KINDS = ["hnsw", "ivf", "sq8"]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tables that FAISS builds."""
    names: list[str] = []
    build = Faiss.build

    def count(engine: Faiss, name: str, vectors: Tensor) -> Table:
        names.append(name)
        return build(engine, name, vectors)

    monkeypatch.setattr(Faiss, "build", count)
    return names


def build_index(path: Path) -> Tensor:
    similarity, items, queries = make_world("random", 600, seed=0)
    Index.build(similarity, items, path=path)
    return queries


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_process_opens_what_the_first_has_built(kind: str, tmp_path: Path, builds: list[str]) -> None:
    queries = build_index(tmp_path / "index")
    engine = Faiss(kind)
    first = Index.open(tmp_path / "index", engine=engine)
    assert builds == []  # opening builds nothing, and neither does the check that FAISS is there
    expected = [first.search(queries, 5, strategy) for strategy in (Average(40), PerComponent(10))]
    num_tables = 1 + first.similarity.num_item_components
    assert len(builds) == len(set(builds)) == num_tables
    second = Index.open(tmp_path / "index", engine=engine)
    found = [second.search(queries, 5, strategy) for strategy in (Average(40), PerComponent(10))]
    assert len(builds) == num_tables
    for before, after in zip(expected, found, strict=True):
        assert torch.equal(before.ids, after.ids)
        assert torch.equal(before.scores, after.scores)
    assert second.verify().is_intact


def test_tables_do_not_depend_on_effort_but_on_links(tmp_path: Path, builds: list[str]) -> None:
    queries = build_index(tmp_path / "index")
    for engine in (Faiss("hnsw"), Faiss("hnsw", effort=200)):
        Index.open(tmp_path / "index", engine=engine).search(queries, 5, Average(40))
    assert len(builds) == 1
    Index.open(tmp_path / "index", engine=Faiss("hnsw", links=8)).search(queries, 5, Average(40))
    assert len(builds) == 2


def test_prepare_engine_builds_all_tables(tmp_path: Path, builds: list[str]) -> None:
    queries = build_index(tmp_path / "index")
    index = Index.open(tmp_path / "index", engine=Faiss("ivf"))
    index.prepare_engine()
    num_built = len(builds)
    index.search(queries, 5, PerComponent(10))
    index.search(queries, 5, Average(40))
    assert len(builds) == num_built == 1 + index.similarity.num_item_components
    Index.open(tmp_path / "index").prepare_engine()  # a scan has nothing to prepare
    Index.build(DotProduct(dim=2), torch.ones(3, 2), engine=Faiss("ivf")).prepare_engine()  # nor a folder to keep it in


def test_removals_and_additions_keep_the_tables_of_old_segments(tmp_path: Path, builds: list[str]) -> None:
    similarity, items, queries = make_world("random", 600, seed=0)
    index = Index.build(similarity, items, path=tmp_path / "index", engine=Faiss("hnsw"))
    index.search(queries, 5, Average(40))
    index.remove(range(100))
    index.search(queries, 5, Average(40))
    assert len(builds) == 1
    index.add(items[:10], ids=range(1000, 1010))
    index.search(queries, 5, Average(40))
    assert len(builds) == 1 + (index.num_segments - 1)
    other = Index.open(tmp_path / "index", engine=Faiss("hnsw"))
    assert torch.equal(other.search(queries, 5, Average(40)).ids, index.search(queries, 5, Average(40)).ids)
    assert len(builds) == 1 + (index.num_segments - 1)


def test_cleanup_removes_tables_with_their_segments(tmp_path: Path) -> None:
    queries = build_index(tmp_path / "index")
    index = Index.open(tmp_path / "index", engine=Faiss("hnsw"))
    index.search(queries, 5, Average(40))
    (old,) = (tmp_path / "index" / "tables").iterdir()
    index.compact()
    index.search(queries, 5, Average(40))
    assert old.exists()  # its version is still kept
    for item in range(4):
        index.remove([item])
    names = [path.name for path in (tmp_path / "index" / "tables").iterdir()]
    assert len(names) == 1
    assert names != [old.name]


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "folder missing", "other table"])
def test_a_damaged_table_is_built_again(damage: str, tmp_path: Path, builds: list[str]) -> None:
    queries = build_index(tmp_path / "index")
    tables = tmp_path / "index" / "tables"
    expected = Index.open(tmp_path / "index", engine=Faiss("hnsw")).search(queries, 5, Average(40))
    (path,) = tables.iterdir()
    content = path.read_bytes()
    if damage == "flipped":
        path.write_bytes(content[:-100] + bytes([content[-100] ^ 8]) + content[-99:])
    elif damage == "cut":
        path.write_bytes(content[:-5])
    elif damage == "missing":
        path.unlink()
    elif damage == "folder missing":
        shutil.rmtree(tables)
    else:
        build_index(tmp_path / "other")
        Index.open(tmp_path / "other", engine=Faiss("hnsw")).search(queries, 5, Average(40))
        shutil.copy(next((tmp_path / "other" / "tables").iterdir()), path)
        builds.pop()
    found = Index.open(tmp_path / "index", engine=Faiss("hnsw")).search(queries, 5, Average(40))
    assert torch.equal(found.ids, expected.ids)
    assert len(builds) == 2
    Index.open(tmp_path / "index", engine=Faiss("hnsw")).search(queries, 5, Average(40))
    assert len(builds) == 2  # the table that was built again is kept
    assert Index.check(tmp_path / "index").is_intact


def test_a_reader_that_cannot_write_still_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = build_index(tmp_path / "index")

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    index = Index.open(tmp_path / "index", engine=Faiss("hnsw"))
    assert index.search(queries, 5, Average(40)).ids.shape == (3, 5)
    assert not (tmp_path / "index" / "tables").exists()


def test_a_search_after_close_opens_tables_again(tmp_path: Path, builds: list[str]) -> None:
    queries = build_index(tmp_path / "index")
    index = Index.open(tmp_path / "index", engine=Faiss("hnsw"))
    before = index.search(queries, 5, Average(40))
    index.close()
    assert torch.equal(index.search(queries, 5, Average(40)).ids, before.ids)
    assert len(builds) == 1


def test_an_engine_that_fails_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = build_index(tmp_path / "index")

    def fail(*arguments: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Faiss, "build", fail)
    index = Index.open(tmp_path / "index", engine=Faiss("hnsw"))
    with pytest.raises(EngineError, match=r"Faiss\('hnsw', links=32\) failed to build a table .*out of luck"):
        index.search(queries, 5, Average(40))
    assert bool(index.search(queries, 5, BruteForce()).is_exact.all())  # needs no table


def test_an_engine_that_is_not_available_is_refused_at_once(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Remote(AtMost):
        def check_available(self, dim: int | None = None) -> None:
            if dim is not None and dim > 4:
                raise EngineError(f"dim is {dim} but this server takes 4; use fewer dimensions.")
            if self.max_n == 1:
                raise ConnectionError("nobody there")

        def build(self, name: str, vectors: Tensor) -> AtMostTable:
            raise AssertionError("the check must build nothing")

    with pytest.raises(EngineError, match="dim is 8 but this server takes 4"):
        Index.build(DotProduct(dim=8), torch.ones(3, 8), engine=Remote(None))
    with pytest.raises(EngineError, match=r"AtMost\(1\) failed to say whether it is available .*nobody there"):
        Index.build(DotProduct(dim=2), torch.ones(3, 2), engine=Remote(1))
    Index.build(DotProduct(dim=8), torch.ones(3, 8), path=tmp_path / "index")
    with pytest.raises(EngineError, match="dim is 8 but this server takes 4"):
        Index.open(tmp_path / "index", engine=Remote(None))


@pytest.mark.slow
def test_another_process_opens_what_this_one_has_built(tmp_path: Path) -> None:
    """Count builds in a process of its own, in which nothing of this one is left in memory."""
    queries = build_index(tmp_path / "index")
    expected = Index.open(tmp_path / "index", engine=Faiss("hnsw")).search(queries, 5, Average(40))
    program = (
        "import sys, numpy, torch\n"
        "from railsearch import Average, Faiss, Index\n"
        "def fail(*arguments): raise AssertionError('it builds')\n"
        "Faiss.build = fail\n"
        "queries = torch.from_numpy(numpy.load(sys.argv[2]))\n"
        "print(Index.open(sys.argv[1], engine=Faiss('hnsw')).search(queries, 5, Average(40)).ids.tolist())\n"
    )
    np.save(tmp_path / "queries.npy", queries.numpy())
    command = [sys.executable, "-c", program, str(tmp_path / "index"), str(tmp_path / "queries.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(expected.ids.tolist()), done.stderr


def test_a_tuned_strategy_is_kept_under_the_key_of_the_engine(tmp_path: Path) -> None:
    queries = build_index(tmp_path / "index")
    index = Index.open(tmp_path / "index", engine=Flat())
    index.tune(queries.repeat(20, 1), 5, target_recall=0.2)
    (tuned,) = index.describe()["tuned"]
    assert tuned.startswith("k = 5, Flat(): ")
