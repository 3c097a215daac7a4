"""The commands that split an index, build shards, and search and change them, used as people would."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch import DotProduct, RailsearchError, save_similarity
from tests.support.commands import run, run_main
from tests.support.native import needs_native


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    save_similarity(DotProduct(dim=4), tmp_path / "model")
    embeddings = rng.normal(size=(40, 4)).astype(np.float32)
    movies = pl.DataFrame({"id": [f"m{row}" for row in range(40)], "year": 1980 + np.arange(40) % 9})
    movies.with_columns(embedding=pl.Series(embeddings)).write_parquet(tmp_path / "movies.parquet")
    np.save(tmp_path / "users.npy", rng.normal(size=(2, 4)).astype(np.float32))
    items = ("--items", tmp_path / "movies.parquet")
    run("index", "build", tmp_path / "index", "--model", tmp_path / "model", *items)
    run("index", "build", tmp_path / "built", "--model", tmp_path / "model", *items, "--shards", 3)
    return tmp_path


@needs_native
def test_shards_answer_as_the_index_does(folder: Path) -> None:
    described = json.loads(run("index", "shard", folder / "index", "--shards", 3, folder / "shards", "--json"))
    assert (described["items"], len(described["shards"]), described["ids"]) == (40, 3, "strings")
    assert "shard-00002" in run("index", "info", folder / "built")
    search = ("--queries", folder / "users.npy", "--allow", "year < 1985", "-k", 3, "--explain", "--json")
    expected = json.loads(run("search", folder / "index", *search))["queries"]
    for name in ("shards", "built"):
        assert json.loads(run("search", folder / name, *search))["queries"] == expected
    assert "intact" in run("index", "verify", folder / "shards")
    run("index", "remove", folder / "shards", "m1", "m2")
    added = json.loads(
        run("index", "add", folder / "shards", "--items", folder / "movies.parquet", "--upsert", "--json")
    )
    assert (added["items"], added["version"]) == (40, 3)
    run("index", "compact", folder / "shards")
    by = ("--by", "year", folder / "by-year", "--json")
    assert json.loads(run("index", "shard", folder / "index", "--shards", 2, *by))["by"] == "year"


def test_damage_is_found_in_every_shard(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    next((folder / "built" / "shard-00001" / "segments").iterdir()).unlink()
    assert run_main("index", "verify", folder / "built") == 1
    assert "shard-00001" in capfd.readouterr().out
    (folder / "built" / "snapshots" / "00000001.json").unlink()
    assert run_main("index", "verify", folder / "built", "--json") == 1
    assert "holds no snapshot" in capfd.readouterr().out


def test_wrong_commands(folder: Path) -> None:
    build = ("index", "build", folder / "other", "--model", folder / "model")
    with pytest.raises(RailsearchError, match="--shards needs --items"):
        run(*build, "--shards", 2)
    with pytest.raises(RailsearchError, match="either --engine or --shards"):
        run(*build, "--items", folder / "movies.parquet", "--shards", 2, "--engine", "Flat")
    with pytest.raises(RailsearchError, match="already holds a split index"):
        run("index", "shard", folder / "index", "--shards", 2, folder / "built")
    with pytest.raises(RailsearchError, match="not a column of the metadata"):
        run("index", "shard", folder / "index", "--shards", 2, folder / "other", "--by", "genre")
    with pytest.raises(RailsearchError, match="is split; encode the texts"):
        run("index", "add", folder / "built", "--passages", folder / "movies.parquet")
    assert not (folder / "other").exists()
