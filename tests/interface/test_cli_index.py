"""The commands that make, change and search an index folder, used as people would, rightly and wrongly."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch import Index, MixtureOfLogits, RailsearchError, save_similarity
from railsearch.errors import InvalidInputError
from tests.support.commands import run, run_main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    save_similarity(MixtureOfLogits(query_dim=8, item_dim=8, num_query_components=2, seed=0), tmp_path / "model")
    movies = pl.DataFrame(
        {
            "id": np.arange(50) + 100,
            "title": [f"[bold]Movie {row}" for row in range(50)],
            "year": 1980 + np.arange(50) % 40,
            "embedding": rng.normal(size=(50, 8)).astype(np.float32),
        }
    )
    movies.write_parquet(tmp_path / "movies.parquet")
    movies[:3].with_columns(id=pl.Series([7, 100, 101])).write_parquet(tmp_path / "more.parquet")
    np.save(tmp_path / "users.npy", rng.normal(size=(3, 8)).astype(np.float32))
    run("index", "build", tmp_path / "index", "--model", tmp_path / "model", "--items", tmp_path / "movies.parquet")
    return tmp_path


def test_build_and_info(folder: Path) -> None:
    described = json.loads(run("index", "info", folder / "index", "--json"))
    assert (described["items"], described["version"], described["metadata"]) == (50, 1, ["title", "year"])
    assert described["fingerprint"] in run("index", "info", folder / "index")
    opened = Index.open(folder / "index")
    assert described == opened.describe()
    assert opened.ids.tolist() == list(range(100, 150))


def test_scan_in_int8(folder: Path) -> None:
    items = ("--items", folder / "movies.parquet")
    run("index", "build", folder / "int8", "--model", folder / "model", *items, "--scan", "int8")
    assert json.loads(run("index", "info", folder / "int8", "--json"))["engine"] == "Flat(scan='int8')"
    assert "Flat()" in run("index", "info", folder / "index")


def test_changes(folder: Path) -> None:
    index = folder / "index"
    with pytest.raises(InvalidInputError, match="id 100 is already in the index"):
        run("index", "add", index, "--items", folder / "more.parquet")
    assert (
        json.loads(run("index", "add", index, "--items", folder / "more.parquet", "--upsert", "--json"))["items"] == 51
    )
    with pytest.raises(InvalidInputError, match="id 8 is not in the index"):
        run("index", "remove", index, 7, 8)
    assert json.loads(run("index", "remove", index, 7, 8, "--missing-ok", "--json"))["items"] == 50
    np.save(folder / "gone.npy", np.arange(110, 120))
    assert json.loads(run("index", "remove", index, "--ids", folder / "gone.npy", "--json"))["items"] == 40
    with pytest.raises(InvalidInputError, match="no items to remove"):
        run("index", "remove", index)
    described = json.loads(run("index", "compact", index, "--json"))
    assert (described["items"], described["segments"], described["removed"]) == (40, 1, 0)
    assert json.loads(run("index", "info", index, "--version", 3, "--json"))["version"] == 3


def test_string_ids(folder: Path) -> None:
    movies = pl.read_parquet(folder / "movies.parquet").with_columns(id=pl.format("tt{}", "id"))
    movies.write_parquet(folder / "named.parquet")
    index = folder / "named"
    built = run("index", "build", index, "--model", folder / "model", "--items", folder / "named.parquet", "--json")
    assert (json.loads(built)["ids"], json.loads(built)["metadata"]) == ("strings", ["title", "year"])
    options = ["search", index, "--queries", folder / "users.npy", "-k", 3, "--explain"]
    answers = json.loads(run(*options, "--json"))["queries"]
    plain = json.loads(run("search", folder / "index", *options[2:], "--json"))["queries"]
    for answer, expected in zip(answers, plain, strict=True):
        assert [item["id"] for item in answer["items"]] == [f"tt{item['id']}" for item in expected["items"]]
        assert answer["explanation"]["id"] == answer["items"][0]["id"]
    assert f"why item {answers[0]['items'][0]['id']}: gate" in run(*options)
    with pytest.raises(InvalidInputError, match="id 'tt9' is not in the index"):
        run("index", "remove", index, "tt100", "tt9")
    run("index", "remove", index, "tt100", "tt101")
    (folder / "gone.txt").write_text("tt102\ntt103\n")
    assert json.loads(run("index", "remove", index, "--ids", folder / "gone.txt", "--json"))["items"] == 46
    np.save(folder / "two.npy", np.ones((2, 8), dtype=np.float32))
    (folder / "two.txt").write_text("tt1\ntt104\n")
    add = ["index", "add", folder / "untitled", "--items", folder / "two.npy", "--ids", folder / "two.txt", "--json"]
    run(*["index", "build", folder / "untitled", "--model", folder / "model", *add[3:]])
    assert json.loads(run(*add, "--upsert"))["items"] == 2
    with pytest.raises(InvalidInputError, match="id 'tt1' is already in the index"):
        run(*add)
    with pytest.raises(InvalidInputError, match="id 'x' is not an integer, but the ids of this index are"):
        run("index", "remove", folder / "index", 100, "x")
    (folder / "gone.txt").write_text("tt102\n\ntt103")
    with pytest.raises(InvalidInputError, match=r"gone.txt has no id in line 2; write one id on each line"):
        run("index", "remove", index, "--ids", folder / "gone.txt")


def test_arrays_and_precision(folder: Path) -> None:
    np.save(folder / "items.npy", np.random.default_rng(1).normal(size=(9, 8)).astype(np.float32))
    np.save(folder / "ids.npy", np.arange(9) * 2)
    options = ["--model", folder / "model", "--items", folder / "items.npy", "--ids", folder / "ids.npy"]
    described = json.loads(run("index", "build", folder / "half", *options, "--precision", "bf16", "--json"))
    assert (described["precision"], described["items"]) == ("bf16", 9)
    assert Index.open(folder / "half").ids.tolist() == list(range(0, 18, 2))


def test_verify(folder: Path) -> None:
    assert run("index", "verify", folder / "index").startswith("intact: 4 files")
    assert json.loads(run("index", "verify", folder / "index", "--json"))["is_intact"]
    segment = next((folder / "index" / "segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[-5] ^= 1
    segment.write_bytes(content)
    text = run("index", "verify", folder / "index", code=1)
    assert f"{segment} is damaged" in text
    assert "restore it from a copy. Affects version 1, the current one." in text
    assert "1 problems" in text
    (problem,) = json.loads(run("index", "verify", folder / "index", "--json", code=1))["problems"]
    assert problem["file"] == f"segments/{segment.name}"
    assert (problem["versions"], problem["is_current"]) == ([1], True)
    with pytest.raises(RailsearchError, match="is damaged: its checksum does not match; restore it from a copy"):
        run("search", folder / "index", "--queries", folder / "users.npy")
    with pytest.raises(RailsearchError, match="does not exist"):
        run("index", "verify", folder / "nothing")


def test_tune(folder: Path) -> None:
    np.save(folder / "sample.npy", np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32))
    options = ["index", "tune", folder / "index", "--queries", folder / "sample.npy", "-k", 3]
    report = json.loads(run(*options, "--target-recall", 0.5, "--json"))
    assert (report["k"], report["target_recall"], report["version"]) == (3, 0.5, 2)
    chosen = next(row for row in report["rows"] if row["strategy"] == report["chosen"])
    assert chosen["guaranteed_recall"] >= 0.5
    assert {"BruteForce", "TwoPass", "Average(3)"} <= {row["strategy"] for row in report["rows"]}
    assert [row["median_seconds"] for row in report["rows"]] == sorted(row["median_seconds"] for row in report["rows"])
    (tuned,) = json.loads(run("index", "info", folder / "index", "--json"))["tuned"]
    assert tuned.startswith("k = 3, ")
    assert f": {report['chosen']}" in tuned
    text = run(*options, "--target-recall", 0.999)
    assert text.splitlines()[0].split() == ["strategy", "recall", "at", "least", "median", "ms", "p95", "ms", "scored"]
    assert "chosen: " in text
    assert f"stored in version 3 of {folder / 'index'} for k = 3" in text


def test_wrong_tuning_names_flags(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["index", "tune", folder / "index", "--queries", folder / "users.npy", "-k", 3]
    for more, message in (
        ([], "--queries holds 3 queries; give at least 4"),
        (["--target-recall", 1], "--target-recall is 1.0; give a number between 0 and 1"),
        (["--confidence", 2], "--confidence is 2.0; give a number between 0 and 1"),
    ):
        assert run_main(*options, *more) == 2
        assert message in capfd.readouterr().err
    assert Index.open(folder / "index").version == 1


def test_search(folder: Path) -> None:
    options = ["search", folder / "index", "--queries", folder / "users.npy", "-k", 4, "--allow", "year >= 1990"]
    index = Index.open(folder / "index")
    queries = np.load(folder / "users.npy")
    expected = index.search(queries, 4, allow="year >= 1990")
    found = json.loads(run(*options, "--strategy", "TwoPass", "--json"))
    assert found["version"] == 1
    for query, answer in enumerate(found["queries"]):
        assert [item["id"] for item in answer["items"]] == expected.ids[query].tolist()
        assert all(item["year"] >= 1990 and item["title"].startswith("[bold]Movie") for item in answer["items"])
        assert (answer["row"], answer["is_exact"], answer["gap"], answer["num_certified"]) == (query, True, 0.0, 4)
    text = run(*options, "--row", 2)
    assert "query 2" in text
    assert "query 0" not in text
    assert "[bold]Movie" in text
    assert "certified exact" in text
    quick = run(*options, "--strategy", "Average(5)", "--row", 0)
    assert "0 of the items are certainly right; 5 of 50 items scored" in quick


def test_explain(folder: Path) -> None:
    options = ["search", folder / "index", "--queries", folder / "users.npy", "-k", 2, "--row", 1, "--explain"]
    answer = json.loads(run(*options, "--json"))["queries"][0]
    why = answer["explanation"]
    assert why["id"] == answer["items"][0]["id"]
    total = float((np.array(why["component_scores"]) * np.array(why["gate_weights"])).sum())
    assert total == pytest.approx(answer["items"][0]["score"], abs=1e-4)
    text = run(*options)
    assert f"why item {why['id']}: gate weight x component score of each component pair" in text
    assert "item 3" in text  # the fourth item component
    assert "q 1" in text


def test_wrong_searches(folder: Path) -> None:
    options = ["search", folder / "index", "--queries", folder / "users.npy"]
    for more, message in (
        (["-k", 51], "k is 51 but the index holds 50 items"),
        (["--row", 3], "row is 3 but .*users.npy has 3 rows"),
        (["--strategy", "Best"], "there is no strategy 'Best'"),
        (["--allow", "yeer = 2"], "yeer"),
        (["--allow", "year = 1985"], "allow leaves only"),
        (["--version", 9], "version 9 of .*index was never acknowledged; the newest is 1"),
    ):
        with pytest.raises(RailsearchError, match=message):
            run(*options, *more)
    assert len(json.loads(run(*options, "--allow", "year = 1985", "--pad", "--json"))["queries"][0]["items"]) == 2
    with pytest.raises(RailsearchError, match="is not a railsearch index"):
        run("search", folder / "model", "--queries", folder / "users.npy")
    with pytest.raises(RailsearchError, match="already exists"):
        run("index", "build", folder / "index", "--model", folder / "model", "--items", folder / "movies.parquet")


@pytest.mark.parametrize("command", ["build", "add", "remove", "compact", "tune", "verify", "info"])
def test_help_teaches_by_example(command: str) -> None:
    assert f"Example: railsearch index {command} movies.index" in " ".join(run("index", command, "--help").split())


def test_an_engine_is_chosen_by_text(folder: Path) -> None:
    query = ("--queries", folder / "users.npy", "-k", "3", "--strategy", "Average(20)", "--json")
    expected = json.loads(run("search", folder / "index", *query))["queries"]
    found = json.loads(run("search", folder / "index", *query, "--engine", "Faiss(hnsw, effort=50)"))["queries"]
    for plain, approximate in zip(expected, found, strict=True):
        assert [item["id"] for item in plain["items"]] == [item["id"] for item in approximate["items"]]
        assert plain["gap"] is not None
        assert approximate["gap"] is None  # what may miss items certifies nothing
    (table,) = (folder / "index" / "tables").iterdir()
    (engine,) = json.loads(run("index", "info", folder / "index", "--json"))["tables"]
    assert re.fullmatch(r"Faiss\(.*hnsw.*\): 1 tables of [\d,]+ bytes", engine)
    assert f"tables/{table.name}: Faiss(" in run("index", "verify", folder / "index")
    table.write_bytes(table.read_bytes()[:-1])
    (damaged,) = json.loads(run("index", "verify", folder / "index", "--json"))["tables"]  # and yet the index is intact
    assert (damaged["state"], damaged["versions"]) == ("damaged", [1])
    run("index", "compact", folder / "index", "--engine", "Faiss(hnsw)")
    built = folder / "built"
    options = ("--model", folder / "model", "--items", folder / "movies.parquet", "--engine", "Faiss(ivf)")
    run("index", "build", built, *options)
    num_tables = 1 + Index.open(built).similarity.num_item_components
    assert len(list((built / "tables").iterdir())) == num_tables


def test_a_wrong_engine_is_refused_before_any_work(folder: Path) -> None:
    usage = r"choose from: Flat\(scan\), Faiss\(kind, effort, links\)"
    with pytest.raises(InvalidInputError, match=f"there is no engine 'Annoy'; {usage}"):
        run("search", folder / "index", "--queries", folder / "users.npy", "--engine", "Annoy(3)")
    with pytest.raises(InvalidInputError, match="kind is 'lsh'; choose from: flat, hnsw, ivf, sq8"):
        run(
            *("index", "build", folder / "new", "--model", folder / "model"),
            *("--items", folder / "movies.parquet", "--engine", "Faiss(lsh)"),
        )
    assert not (folder / "new").exists()
