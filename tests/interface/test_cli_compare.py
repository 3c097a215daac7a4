"""`railsearch compare`: from files to a verdict; outputs, and flags that do not fit together."""

import json
from pathlib import Path

import numpy as np
import pytest

from railsearch.errors import InvalidInputError
from tests.support.commands import run, run_main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    items = rng.normal(size=(40, 6)).astype("float32")
    rows = rng.integers(40, size=280)
    np.save(tmp_path / "x.npy", items)
    np.save(tmp_path / "q.npy", items[rows] + rng.normal(size=(280, 6)).astype("float32"))
    lines = [f"{query},{item}" for query, item in enumerate(rows)]
    (tmp_path / "pairs.csv").write_text("\n".join(["query,item", *lines]))
    return tmp_path


def embeddings(folder: Path) -> list[object]:
    return ["compare", "--queries", folder / "q.npy", "--items", folder / "x.npy", "--pairs", folder / "pairs.csv"]


SHORT = ["--seeds", 1, "--epochs", 1, "--components", 2]


def test_from_files_to_a_verdict(folder: Path) -> None:
    text = run(
        *embeddings(folder), *SHORT, "--report", folder / "report.md", "--plot", folder / "plot.png", "--out",
        folder / "out",
    )  # fmt: skip
    for name in (
        "frozen cosine",
        "tuned cosine",
        "MoL",
        "HR@10",
        "NDCG@10",
        "MRR",
        "56 queries, ranked against all 40",
    ):
        assert name in text
    verdict = text.strip().splitlines()[-1]
    assert verdict.startswith("MoL")
    assert f"**{verdict}**" in (folder / "report.md").read_text()
    assert (folder / "plot.png").is_file()
    printed = json.loads(run(*embeddings(folder), *SHORT, "--out", folder / "out", "--json"))
    assert printed["verdict"] == verdict
    assert [system["name"] for system in printed["systems"]] == ["frozen cosine", "tuned cosine", "MoL"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to compare; give --queries, --items and --pairs"),
        (["--queries", "q.npy", "--items", "x.npy"], "--pairs is missing; give --queries, --items and --pairs"),
        (["--pairs", "pairs.csv"], "--queries and --items are missing"),
        (["--report", "missing/report.md"], "--report is missing/report.md, which cannot be a file"),
        (["--plot", "plot.gif"], "ends in '.gif'"),
    ],
)
def test_flags_that_do_not_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(InvalidInputError, match=message):
        run("compare", *arguments)


def test_errors_name_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(folder / "q.npy", np.zeros((280, 5), dtype="float32"))
    assert run_main(*embeddings(folder)) == 2
    assert "--queries has 5 values per row but --items has 6" in capsys.readouterr().err
