"""`railsearch compare`: from files to a verdict; outputs, and flags that do not fit together."""

import json
from pathlib import Path

import numpy as np
import pytest

from railsearch.data import write_prepared
from railsearch.errors import InvalidInputError
from tests.support.commands import run, run_main
from tests.support.tiny_text import PAIRS, make_base
from tests.support.training_worlds import random_walks


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
        ([], "nothing to compare; give --queries, --items and --pairs; or a recipe; or --passages, --qu"),
        (["--queries", "q.npy", "--items", "x.npy"], "--pairs is missing; give --queries, --items and --pairs"),
        (["--pairs", "pairs.csv"], "--queries and --items are missing"),
        (["r.toml", "--pairs", "pairs.csv"], "--pairs and a recipe do not go together"),
        (["--queries", "q.npy", "--model", "m"], "--queries and --model do not go together"),
        (["--passages", "d.jsonl", "--model", "m"], "--questions is missing; give --passages, --questions and --model"),
        (["r.toml", "--dot-product"], "--dot-product belongs to embeddings, not to a recipe"),
        (
            ["--queries", "q.npy", "--items", "x.npy", "--pairs", "pairs.csv", "--data", "d"],
            "--data belongs to a recipe, not to embeddings",
        ),
        (["insuranceqa/mol"], "is the recipe of a text retriever; to compare on texts, give --passages"),
        (["r.toml"], "r.toml is neither a file nor a shipped recipe"),
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


RECIPE = """
[encoder]
kind = "sasrec"
dim = 8
max_length = 10
num_blocks = 1

[similarity]
kind = "mixture_of_logits"
num_query_components = 2
num_item_components = 2
gate_dim = 8

[training]
epochs = 3
batch_size = 16
num_negatives = 8
"""


def test_from_a_recipe(tmp_path: Path) -> None:
    write_prepared(random_walks(num_users=60, num_items=20, lengths=(5, 9)), tmp_path / "shop", name="shop")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    command = ["compare", tmp_path / "recipe.toml", "--data", tmp_path / "shop", "--set", "training.epochs=1"]
    printed = json.loads(run(*command, "--json"))
    assert [system["name"] for system in printed["systems"]] == ["popularity", "ItemKNN", "cosine", "MoL"]
    assert "at most 1 epochs" in " ".join(printed["notes"])


def test_from_texts(tmp_path: Path) -> None:
    base = make_base(tmp_path / "bert")
    docs = [{"id": f"d{number}", "text": passage} for number, (_, passage) in enumerate(PAIRS)]
    asked = [
        {"question": f"{question} {word}", "passage_ids": [f"d{number}"]}
        for number, (question, _) in enumerate(PAIRS)
        for word in ("who", "is", "end")
    ]
    for name, records in (("docs", docs), ("questions", asked)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)))
    command = ["--passages", tmp_path / "docs.jsonl", "--questions", tmp_path / "questions.jsonl", "--model", base]
    text = run("compare", *command, *SHORT)
    assert "BM25" in text
    assert "12 test questions are too few for a verdict" in text.strip().splitlines()[-1]


def test_errors_name_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(folder / "q.npy", np.zeros((280, 5), dtype="float32"))
    assert run_main(*embeddings(folder)) == 2
    assert "--queries has 5 values per row but --items has 6" in capsys.readouterr().err
