"""`railsearch bench`, in-process and on small corpora."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from railsearch import DotProduct, Index, RailsearchError
from railsearch.benchmark import scaling
from railsearch.cli.app import app
from railsearch.kernels import native

RUNNER = CliRunner()
SMALL = ("bench", "ml-20m", "--items", "300", "--num-queries", "32", "--repeats", "1")


def run(*arguments: str) -> str:
    result = RUNNER.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tables() -> None:
    text = run(*SMALL, "--strategies", "Average(200) TwoPass")
    for words in ("300 items, 8 x 4 components of 128, float32", "threads", "sharpness 0.2", "HR@100", "batch 32",
                  "batch 1 ", "speed-up", "kernel", "naive BruteForce", "Average(200)", "items scored", "mean gap",
                  "exact", "first stage", "scoring", "selection", "peak memory"):  # fmt: skip
        assert words in text, words
    assert "Combined" not in text


def test_json() -> None:
    text = run(*SMALL, "--k", "10", "--strategies", "Combined(5,20)", "--no-naive", "--sharpness", "0", "--json")
    report = json.loads(text)
    assert (report["workload"], report["sharpness"], report["k"]) == ("ml-20m", 0.0, 10)
    assert report["kernel"] == (f"native ({native.chosen_isa()})" if native.is_available() else "torch")
    assert [row["name"] for row in report["rows"]] == ["BruteForce", "Combined(5, 20)"]
    assert report["rows"][1]["hit_rates"] == {"1": 1.0, "5": 1.0, "10": 1.0}
    assert [latency["batch_size"] for latency in report["rows"][0]["latencies"]] == [32, 1]


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "recall-latency.png"
    run(*SMALL, "--strategies", "Average(100)", "--no-naive", "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "SMALLEST_CORPUS", 200)
    arguments = ("bench", "books", "--items", "500", "--repeats", "1", "--scaling", "--strategies", "Average(100)")
    text = run(*arguments)
    for words in ("Average(100)", "scan of the corpus", "200 ", "400 ", "500 ", "2.5 x the items"):
        assert words in text, words
    assert [row["num_items"] for row in json.loads(run(*arguments, "--json"))["rows"]] == [200, 400, 500]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("movies",), "shape is 'movies'; choose from: ml-20m, books, nq320k"),
        (("books", "--items", "20"), "k is 100 but the index holds 20 items; ask for k <= 20"),
        (("books", "--strategies", "Avrage(5)"), "there is no strategy 'Avrage'"),
        (("books", "--strategies", "Average(5)"), "k is 100 but Average(5)"),
        (("books", "--num-queries", "4"), "4 queries but a batch of 32"),
        (("books", "--plot", "/absent/picture.png"), "there is no folder /absent"),
        (("books", "--scaling", "--strategies", "TwoPass Average(500)"), "--scaling times one strategy"),
        (("books", "--scaling", "--items", "100"), "corpora grow from 24186"),
        (("books", "--scaling", "--engine", "Flat"), "omit --plot and --engine"),
        (("books", "--engine", "Annoy"), "there is no engine 'Annoy'"),
    ],
)
def test_bad_input_is_refused_before_the_run(arguments: tuple[str, ...], message: str) -> None:
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    result = RUNNER.invoke(app, ["bench", *arguments])
    assert isinstance(result.exception, RailsearchError)
    assert message in str(result.exception)


@pytest.mark.parametrize("arguments", [("books", "--items", "0"), ("books", "--sharpness", "-1"), ()])
def test_options_have_limits(arguments: tuple[str, ...]) -> None:
    assert RUNNER.invoke(app, ["bench", *arguments]).exit_code == 2


def test_an_index_folder_with_queries(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    Index.build(DotProduct(dim=4), torch.randn(300, 4, generator=generator), path=tmp_path / "index")
    np.save(tmp_path / "queries.npy", torch.randn(40, 4, generator=generator).numpy())
    options = ["--queries", str(tmp_path / "queries.npy"), "--k", "5", "--repeats", "1", "--strategies", "TwoPass"]
    report = json.loads(run("bench", str(tmp_path / "index"), *options, "--json"))
    assert [row["name"] for row in report["rows"]] == ["BruteForce", "TwoPass"]
    assert report["num_items"] == 300
    assert report["rows"][1]["hit_rates"]["5"] == 1.0
    assert report["engine"] == "Flat()"
    assert "TwoPass" in run("bench", str(tmp_path / "index"), *options)
    assert "engine Faiss('sq8')" in run("bench", str(tmp_path / "index"), *options, "--engine", "Faiss(sq8)")
    for wrong, message in (
        ([str(tmp_path / "index")], "add --queries with its queries"),
        ([str(tmp_path / "index"), *options, "--scaling"], "belong to workloads"),
        ([str(tmp_path / "nothing"), *options], "does not exist"),
    ):
        with pytest.raises(RailsearchError, match=message):
            run("bench", *wrong)
