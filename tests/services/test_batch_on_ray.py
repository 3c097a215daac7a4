"""Batch jobs on Ray: the files of one process, whatever happens to the workers."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch import Index, MixtureOfLogits, save_similarity
from railsearch.data import write_prepared
from railsearch.distributed import ShardedIndex
from railsearch.distributed.batch import RayRunner, build_passages_index, recommend_all, search_file
from railsearch.distributed.batch.running import run_job
from railsearch.errors import ClusterError, InvalidInputError
from railsearch.recommender import Recommender
from tests.support.batch_worlds import (
    DIM,
    NUM_ITEMS,
    FragileJob,
    contents,
    make_index,
    make_items,
    make_queries,
    read_parts,
)
from tests.support.commands import run
from tests.support.tiny_text import PAIRS, make_base, make_retriever
from tests.support.training_worlds import random_walks, small_recipe

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings("default")]
"""Ray leaves files and sockets to the garbage collector."""


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """Start Ray on this machine, as a program of a user would."""
    ray = pytest.importorskip("ray", reason="ray is not installed; run make services")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # otherwise workers starve on a busy machine
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=100_000_000,
            _node_ip_address="127.0.0.1",
        )
        yield
        ray.shutdown()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def test_searches_are_the_same_files(tmp_path: Path) -> None:
    given = (make_index(tmp_path), make_queries(tmp_path))
    options = {"rows_per_part": 16, "show_progress": False}
    search_file(*given, tmp_path / "here", 5, **options)
    report = search_file(*given, tmp_path / "ray", 5, **options, runner=RayRunner())
    assert (report.num_parts, report.num_computed, report.num_rows) == (5, 5, 350)
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
    (tmp_path / "ray" / "part-00003.parquet").unlink()
    printed = run(
        "search", given[0], "--queries", given[1], "-k", 5, "--output", tmp_path / "ray",
        "--rows-per-part", 16, "--ray", "--json",
    )  # fmt: skip
    assert json.loads(printed)["num_computed"] == 1
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")


def test_recommendations_are_the_same(tmp_path: Path) -> None:
    world = random_walks()
    write_prepared(world, tmp_path / "data", name="walks")
    Recommender.fit(world, small_recipe(epochs=1)).save(tmp_path / "model")
    options = {"users_per_part": 16, "show_progress": False}
    recommend_all(tmp_path / "model", tmp_path / "data", tmp_path / "here", 5, **options)
    recommend_all(tmp_path / "model", tmp_path / "data", tmp_path / "ray", 5, **options, runner=RayRunner())
    here, on_ray = read_parts(tmp_path / "here"), read_parts(tmp_path / "ray")
    # Their numbers of threads differ, and with them the last bits; items whose scores are as good as equal may swap.
    assert on_ray["score"].to_list() == pytest.approx(here["score"].to_list(), rel=1e-5)
    for (user, own), (_, other) in zip(by_user(on_ray), by_user(here), strict=True):
        expected = dict(zip(other["item"], other["score"], strict=True))
        last = other["score"].min()
        for item, score in zip(own["item"], own["score"], strict=True):
            assert score == pytest.approx(expected.get(item, last), rel=1e-5), (user, item)


def by_user(found: pl.DataFrame) -> list[tuple[object, pl.DataFrame]]:
    return list(found.group_by("user", maintain_order=True))


def test_passages_are_encoded(tmp_path: Path) -> None:
    make_retriever(make_base(tmp_path / "base")).save(tmp_path / "model")
    passages = tmp_path / "passages.jsonl"
    passages.write_text("".join(json.dumps({"text": passage}) + "\n" for _, passage in PAIRS))
    options = {"passages_per_part": 6, "show_progress": False, "runner": RayRunner()}
    index, report = build_passages_index(tmp_path / "model", passages, tmp_path / "index", **options)
    assert (len(index), report.num_parts) == (20, 4)
    assert Index.check(tmp_path / "index").is_intact


def test_shards_are_built_in_parallel(tmp_path: Path) -> None:
    similarity = MixtureOfLogits(query_dim=DIM, item_dim=DIM, num_query_components=2, seed=0)
    save_similarity(similarity, tmp_path / "model")
    items = pl.DataFrame({"id": [f"item-{row}" for row in range(NUM_ITEMS)], "embedding": make_items()})
    items.write_parquet(tmp_path / "items.parquet", row_group_size=16)
    command = ("index", "build", "--model", tmp_path / "model", "--items", tmp_path / "items.parquet")
    run(*command, tmp_path / "index")
    printed = json.loads(run(*command, tmp_path / "shards", "--shards", 3, "--ray", "--json"))
    assert printed["items"] == NUM_ITEMS
    queries = np.random.default_rng(2).normal(size=(5, DIM)).astype(np.float32)
    found = ShardedIndex.open(tmp_path / "shards").search(queries, 7)
    assert found.keys == Index.open(tmp_path / "index").search(queries, 7).keys
    assert bool(found.is_exact.all())


def test_a_worker_that_dies_is_replaced(notes: Path, tmp_path: Path) -> None:
    job = FragileJob(notes, num_failures=2)
    report = run_job(job, tmp_path / "out", runner=RayRunner(), show_progress=False)
    assert report.num_computed == 6
    assert len(list(notes.glob("failed-*"))) == 2
    assert read_parts(tmp_path / "out")["part"].to_list() == list(range(6))


def test_a_process_opens_a_job_once(notes: Path, tmp_path: Path) -> None:
    run_job(FragileJob(notes, num_failures=0, num_parts=30), tmp_path / "out", runner=RayRunner(), show_progress=False)
    assert len(read_parts(tmp_path / "out")) == 30
    opened = [file.name.split("-")[1] for file in notes.glob("opened-*")]  # by whom; Ray decides how many work
    assert len(set(opened)) == len(opened)


def test_a_job_is_given_up_and_continued(notes: Path, tmp_path: Path) -> None:
    job = FragileJob(notes, num_failures=1)
    with pytest.raises(ClusterError, match=r"part 1 was given up because its workers died \(.*finished parts are kept"):
        run_job(job, tmp_path / "out", runner=RayRunner(retries=0), show_progress=False)
    assert 1 not in [int(name[5:10]) for name in contents(tmp_path / "out")]
    run_job(job, tmp_path / "out", runner=RayRunner(retries=0), show_progress=False)
    assert read_parts(tmp_path / "out")["part"].to_list() == list(range(6))


def test_errors_of_workers_are_errors_of_railsearch(notes: Path, tmp_path: Path) -> None:
    job = FragileJob(notes, num_failures=1, is_killed=False)
    with pytest.raises(InvalidInputError, match=r"^part 1 has a wrong value; repair it\.$"):
        run_job(job, tmp_path / "out", runner=RayRunner(), show_progress=False)
