"""Commands that run batch jobs, used as people would, rightly and wrongly."""

import json
from pathlib import Path

import polars as pl
import pytest

from railsearch import Index
from railsearch.data import write_prepared
from railsearch.errors import InvalidInputError
from railsearch.recommender import Recommender
from tests.support.batch_worlds import make_index, make_queries, read_parts
from tests.support.commands import run, run_main
from tests.support.tiny_text import PAIRS, make_base, make_retriever
from tests.support.training_worlds import random_walks, small_recipe


def test_search_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_index(tmp_path)
    queries = make_queries(tmp_path)
    command = ("search", tmp_path / "index", "--queries", queries, "-k", 3, "--output", tmp_path / "out")
    in_parts = (*command, "--rows-per-part", 32)
    printed = json.loads(run(*in_parts, "--strategy", "TwoPass", "--json"))
    assert (printed["num_parts"], printed["num_computed"], printed["num_rows"]) == (3, 3, 210)
    embeddings = pl.read_parquet(queries)["embedding"].to_numpy()
    expected = Index.open(tmp_path / "index").search(embeddings, 3)
    assert read_parts(tmp_path / "out")["id"].to_list() == expected.ids.flatten().tolist()
    (tmp_path / "out" / "part-00001.parquet").unlink()
    assert "3, 2 of them from an earlier run" in run(*in_parts, "--strategy", "TwoPass")
    assert run_main(*in_parts) == 2
    assert "its strategy is 'TwoPass()' but this job has None" in capsys.readouterr().err
    assert run_main(*command[:-1], "s3://bucket/results") == 2
    assert "--output is 's3://bucket/results', which is a URL; give a folder." in capsys.readouterr().err


def test_flags_that_do_not_fit(tmp_path: Path) -> None:
    wrong = [
        (("search", "index", "--text", "a", "--output", tmp_path), "--output takes all of --queries"),
        (
            ("search", "index", "--queries", "a.npy", "--row", 1, "--output", tmp_path),
            "--output takes all of --queries",
        ),
        (
            ("search", "index", "--queries", "a.npy", "--ray"),
            "--ray is for batch jobs, .* add --output",
        ),
        (("search", "index", "--queries", "a.npy", "--id-column", "a"), "--id-column is for batch jobs"),
        (("search", "index", "--queries", "a.npy", "--rows-per-part", 9), "--rows-per-part is for batch jobs"),
        (("search", "index", "--queries", "a.npy", "--ray-address", "auto"), "--ray-address needs --ray"),
        (("recommend", "model", "--all-users", "--output", tmp_path), "--all-users needs --data and --output"),
        (("recommend", "model", "--history", "1", "--output", tmp_path), "--output is for .* add --all-users"),
        (
            ("index", "build", "new", "--model", "model", "--items", "a.npy", "--ray"),
            "--ray needs --passages or --shards",
        ),
    ]
    for arguments, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            run(*arguments)


def test_recommend_to_all_users(tmp_path: Path) -> None:
    world = random_walks()
    write_prepared(world, tmp_path / "data", name="walks")
    recommender = Recommender.fit(world, small_recipe(epochs=1))
    recommender.save(tmp_path / "model")
    command = ("recommend", tmp_path / "model", "--all-users", "--data", tmp_path / "data", "-k", 3)
    printed = json.loads(run(*command, "--output", tmp_path / "out", "--rows-per-part", 20, "--keep-viewed", "--json"))
    assert (printed["num_parts"], printed["num_rows"]) == (3, 150)
    expected = recommender.recommend(world.user_ids, 3, filter_viewed=False)
    assert read_parts(tmp_path / "out")["item"].to_list() == expected["item"].to_list()


def test_passages_in_parts(tmp_path: Path) -> None:
    make_retriever(make_base(tmp_path / "base")).save(tmp_path / "model")
    passages = tmp_path / "passages.jsonl"
    passages.write_text("".join(json.dumps({"text": passage}) + "\n" for _, passage in PAIRS))
    command = ("index", "build", tmp_path / "index", "--model", tmp_path / "model", "--passages", passages)
    printed = json.loads(run(*command, "--parts", tmp_path / "parts", "--json"))
    assert printed["items"] == len(PAIRS)
    assert printed["encoding"].startswith("20 passages in this run, ")
    assert not (tmp_path / "parts").exists()
