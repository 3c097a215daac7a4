"""Searches for a file of queries: the same answers as one call, in parts that a second run completes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch import Index, TwoPass
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.distributed.batch import LocalRunner, search_file
from railsearch.distributed.batch.job import InputFile, PartTask
from railsearch.errors import FingerprintError, InvalidInputError, JobFolderError, NotEnoughItemsError, StorageError
from tests.support.batch_worlds import (
    DIM,
    NUM_QUERIES,
    InterruptedJobError,
    StoppingRunner,
    contents,
    make_index,
    make_queries,
    read_parts,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_index(tmp_path)
    make_queries(tmp_path)
    return tmp_path


def run(folder: Path, k: int = 5, **options: object) -> Path:
    given = {"rows_per_part": 32, "show_progress": False, **options}
    search_file(folder / "index", folder / "queries.parquet", folder / "results", k, **given)
    return folder / "results"


def embeddings_of(folder: Path) -> np.ndarray:
    return pl.read_parquet(folder / "queries.parquet")["embedding"].to_numpy()


@pytest.mark.parametrize("has_keys", [False, True])
def test_results_are_those_of_one_search(tmp_path: Path, has_keys: bool) -> None:
    make_index(tmp_path, has_keys=has_keys)
    make_queries(tmp_path)
    report = search_file(
        tmp_path / "index", tmp_path / "queries.parquet", tmp_path / "results", 5,
        strategy=TwoPass(), allow="year >= 1990", rows_per_part=32, show_progress=False,
    )  # fmt: skip
    assert (report.num_parts, report.num_computed, report.num_rows) == (3, 3, 5 * NUM_QUERIES)
    found = read_parts(tmp_path / "results")
    expected = Index.open(tmp_path / "index").search(embeddings_of(tmp_path), 5, TwoPass(), allow="year >= 1990")
    assert found.columns == ["query", "rank", "id", "score", "is_exact", "gap", "num_scored"]
    assert found["query"].to_list() == [f"q{row}" for row in range(NUM_QUERIES) for _ in range(5)]
    assert found.select("rank", "id", "score").equals(expected.to_frame().select("rank", "id", "score"))
    of_query = found.filter(pl.col("rank") == 1)
    for name in ("is_exact", "gap", "num_scored"):
        assert of_query[name].to_list() == getattr(expected, name).tolist()


def test_a_split_index_gives_the_same_rows(folder: Path) -> None:
    shard_index(folder / "index", folder / "shards", 3, show_progress=False)
    options = {"strategy": TwoPass(), "rows_per_part": 32, "show_progress": False}
    search_file(folder / "shards", folder / "queries.parquet", folder / "of-shards", 5, **options)
    whole = read_parts(run(folder, strategy=TwoPass()))
    assert read_parts(folder / "of-shards").drop("num_scored").equals(whole.drop("num_scored"))
    ShardedIndex.open(folder / "shards").remove([0])
    with pytest.raises(JobFolderError, match="its index_version is 1 but this job has 2"):
        search_file(folder / "shards", folder / "queries.parquet", folder / "of-shards", 5, **options)


def test_ids_of_queries(folder: Path) -> None:
    np.save(folder / "queries.npy", embeddings_of(folder))
    options = {"rows_per_part": 32, "show_progress": False}
    search_file(folder / "index", folder / "queries.npy", folder / "of-array", 2, **options)
    by_number = read_parts(folder / "of-array")
    assert by_number["query"].to_list() == [row for row in range(NUM_QUERIES) for _ in range(2)]
    chosen = run(folder, 2, id_column="other")
    assert set(read_parts(chosen)["query"]) == {"x"}
    assert read_parts(chosen).drop("query").equals(by_number.drop("query"))
    with pytest.raises(InvalidInputError, match=r"queries\.npy is an array, which has no column 'id'"):
        search_file(folder / "index", folder / "queries.npy", folder / "third", 2, id_column="id")


def test_a_second_run_computes_only_missing_parts(folder: Path) -> None:
    whole = contents(run(folder))
    (folder / "results").rename(folder / "whole")
    with pytest.raises(InterruptedJobError):
        run(folder, runner=StoppingRunner(2))
    assert sorted(contents(folder / "results")) == ["part-00000.parquet", "part-00001.parquet"]
    (folder / "results" / "part-00002.parquet.0.tmp").write_bytes(b"PAR1")  # a killed process leaves such a file
    computed = []

    class Recording(LocalRunner):
        def run(self, task: PartTask, parts: list[int], on_done: object) -> None:
            computed.extend(parts)
            super().run(task, parts, on_done)

    run(folder, runner=Recording())
    assert computed == [2]
    assert contents(folder / "results") == whole
    assert not list((folder / "results").glob("*.tmp"))
    run(folder, runner=Recording())
    assert computed == [2]


VICTIM = """
import os, sys
from pathlib import Path
from railsearch.distributed.batch import search_file
from railsearch.foundation import files
from tests.support.batch_worlds import StoppingRunner

folder, is_writing = Path(sys.argv[1]), sys.argv[2] == "True"
if is_writing:  # the content of a part is written, its name is not changed yet
    numbers, sync = iter(range(100)), files.sync
    files.sync = lambda path: os._exit(9) if next(numbers) == 6 else sync(path)
runner = None if is_writing else StoppingRunner(2, is_killed=True)
search_file(folder / "index", folder / "queries.parquet", folder / "results", 5, rows_per_part=32, runner=runner)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_writing", [False, True])
def test_a_killed_process_leaves_complete_parts(folder: Path, is_writing: bool) -> None:
    whole = contents(run(folder))
    (folder / "results").rename(folder / "whole")
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    killed = subprocess.run([sys.executable, "-c", VICTIM, folder, str(is_writing)], env=environment, check=False)
    assert killed.returncode == 9
    kept = contents(folder / "results")
    assert len(kept) == 2
    assert kept.items() <= whole.items()
    assert bool(list((folder / "results").glob("*.tmp"))) == is_writing
    run(folder)
    assert contents(folder / "results") == whole
    assert not list((folder / "results").glob("*.tmp"))


def test_memory_holds_one_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call reads or answers more rows than a part has."""
    sizes = []
    search = Index.search

    def watched(self: Index, queries: np.ndarray, *arguments: object, **options: object) -> object:
        sizes.append(len(queries))
        return search(self, queries, *arguments, **options)

    monkeypatch.setattr(Index, "search", watched)
    run(folder)
    assert sizes == [1, 32, 32, 6]


def test_another_job_in_the_folder_is_refused(folder: Path) -> None:
    before = contents(run(folder))
    with pytest.raises(JobFolderError, match="belongs to another job: its k is 5 but this job has 6"):
        run(folder, 6)
    with pytest.raises(JobFolderError, match=r"its strategy is None but this job has 'TwoPass\(\)'"):
        run(folder, strategy=TwoPass())
    with pytest.raises(JobFolderError, match="its rows_per_part is 32 but this job has 16"):
        run(folder, rows_per_part=16)
    make_queries(folder, seed=2)
    with pytest.raises(JobFolderError, match="its queries_checksum is"):
        run(folder)
    make_queries(folder)
    Index.open(folder / "index").remove([0])
    with pytest.raises(JobFolderError, match="its index_version is 1 but this job has 2"):
        run(folder)
    run(folder, version=1)
    assert contents(folder / "results") == before


def test_folders_that_are_refused(folder: Path) -> None:
    results = run(folder)
    saved = (results / "job.json").read_text()
    (results / "job.json").write_text(saved.replace('"k": 5', '"k": 6'))
    with pytest.raises(JobFolderError, match="was changed or damaged after saving; remove the folder"):
        run(folder)
    (results / "job.json").write_text(saved)
    (results / "part-00000.parquet").rename(results / "part-00007.parquet")
    with pytest.raises(JobFolderError, match=r"part-00007\.parquet is not one of the 3 parts"):
        run(folder)
    (results / "part-00007.parquet").write_bytes((results / "part-00001.parquet").read_bytes())
    (results / "part-00007.parquet").rename(results / "part-00000.parquet")
    with pytest.raises(JobFolderError, match=r"part-00000\.parquet is not part 0 of this job"):
        run(folder)
    (results / "part-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(JobFolderError, match=r"part-00000\.parquet is damaged"):
        run(folder)
    (results / "mine.txt").touch()
    with pytest.raises(InvalidInputError, match=r"output is .*results, which holds mine\.txt; choose an empty"):
        run(folder)
    (results / "mine.txt").unlink()
    (results / "job.json").unlink()
    with pytest.raises(InvalidInputError, match=r"which holds parts without a job\.json"):
        run(folder)
    with pytest.raises(InvalidInputError, match="which is a file; give a folder"):
        search_file(folder / "index", folder / "queries.parquet", folder / "queries.parquet")


@pytest.mark.parametrize("url", ["s3://bucket/results", "gs://bucket", Path("s3://bucket/results")])
def test_urls_are_refused(folder: Path, url: str | Path) -> None:
    with pytest.raises(InvalidInputError, match=r"which is a URL; give a folder.*mount the bucket"):
        search_file(folder / "index", folder / "queries.parquet", url)


def test_one_process_at_a_time(folder: Path) -> None:
    class Second(LocalRunner):
        def run(self, task: PartTask, parts: list[int], on_done: object) -> None:
            with pytest.raises(JobFolderError, match=r"another process runs a job in .*results"):
                run(folder)
            super().run(task, parts, on_done)

    assert len(contents(run(folder, runner=Second()))) == 3


def test_wrong_input_is_refused_before_any_work(folder: Path) -> None:
    wrong = [
        ({"embedding_column": "vector"}, "has no column 'vector'; its columns are: id, embedding, other"),
        ({"id_column": "name"}, "has no column 'name'"),
        ({"allow": "colour = 1"}, "colour"),
        ({"strategy": "TwoPass"}, "strategy is 'TwoPass'"),
        ({"rows_per_part": 0}, "rows_per_part is 0"),
        ({"version": 7}, "version"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            run(folder, **options)
    with pytest.raises(NotEnoughItemsError, match="k is 61 but the index holds 60"):
        run(folder, 61)
    pl.DataFrame({"embedding": np.zeros((3, DIM + 1), np.float32)}).write_parquet(folder / "queries.parquet")
    with pytest.raises(InvalidInputError, match=f"{DIM + 1}.*{DIM}"):
        run(folder)
    pl.DataFrame({"embedding": np.zeros((0, DIM), np.float32)}).write_parquet(folder / "queries.parquet")
    with pytest.raises(InvalidInputError, match="holds no queries"):
        run(folder)
    assert not (folder / "results").exists()


def test_an_input_that_changes_meanwhile_is_refused(folder: Path) -> None:
    class Changing(LocalRunner):
        def run(self, task: PartTask, parts: list[int], on_done: object) -> None:
            super().run(task, parts[:1], on_done)
            make_queries(folder, seed=2)
            os.utime(folder / "queries.parquet", ns=(0, 0))
            super().run(task, parts[1:], on_done)

    with pytest.raises(InvalidInputError, match="was changed while the job was running"):
        run(folder, runner=Changing())
    assert sorted(contents(folder / "results")) == ["part-00000.parquet"]
    missing = dataclasses.replace(InputFile.describe(folder / "queries.parquet"), path=folder / "gone")
    with pytest.raises(InvalidInputError, match="put it on a file system that all workers share"):
        missing.check()


def test_an_index_that_was_replaced_is_refused(folder: Path) -> None:
    class Replacing(LocalRunner):
        def run(self, task: PartTask, parts: list[int], on_done: object) -> None:
            (folder / "index").rename(folder / "old")
            make_index(folder)
            super().run(task, parts, on_done)

    with pytest.raises(FingerprintError, match="but the job started with"):
        run(folder, runner=Replacing())


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = iter(range(100))

    def write_bytes(path: Path, content: object) -> int:
        if next(written) == 1:
            raise OSError(28, "No space left on device", str(path))
        with path.open("wb") as file:
            return file.write(content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(StorageError, match=r"part-00001\.parquet cannot be written \(No space left on device\)"):
        run(folder)
    assert len(contents(run(folder))) == 3


def test_job_file_states_the_job(folder: Path) -> None:
    stated = json.loads((run(folder) / "job.json").read_text())
    assert stated["job"]["kind"] == "search"
    assert (stated["job"]["k"], stated["job"]["num_parts"], stated["job"]["index_version"]) == (5, 3, 1)
    assert stated["places"]["queries"] == str(folder / "queries.parquet")
