"""`railsearch train`: from a recipe and prepared data to a model folder; rerun, cut short, and misused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from railsearch.cli.app import app
from railsearch.data import read_prepared, write_prepared
from railsearch.errors import DataFolderError, InvalidInputError
from railsearch.recommender import Recommender
from tests.support.commands import run
from tests.support.cycles import cycles
from tests.support.training_worlds import random_walks

RECIPE = """
[data]
folder = "{data}"

[encoder]
kind = "sasrec"
dim = 8
max_length = 10

[similarity]
kind = "mixture_of_logits"
num_query_components = 2
num_item_components = 2
component_dim = 4
projection_dim = 8
gate_dim = 8

[training]
epochs = 2
batch_size = 8
num_negatives = 8
checkpoint_minutes = 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_prepared(cycles(), tmp_path / "cycles", name="cycles")
    (tmp_path / "small.toml").write_text(RECIPE.format(data=tmp_path / "cycles"))
    return tmp_path


def losses(run_folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run_folder / "log.jsonl").read_text().splitlines()]


def test_from_a_recipe_to_a_model(folder: Path) -> None:
    text = run("train", folder / "small.toml", "--out", folder / "run")
    model = Recommender.load(folder / "run" / "model", interactions=read_prepared(folder / "cycles"))
    assert model.recommend([1, 2], 3).height == 6
    assert f"HR@10     {model.card.metrics['HR@10']:.4f}" in text
    assert f"protocol: {model.card.protocol}" in text
    assert f"epoch {model.card.best_epoch} of 2, picked by MRR on validation items" in text
    assert f"saved: {folder / 'run' / 'model'}" in text
    assert model.recipe.data.folder == str(folder / "cycles")
    assert len(losses(folder / "run")) == 2
    assert (folder / "run" / "model" / "README.md").is_file()


def test_json_and_changes(folder: Path) -> None:
    changes = ("--set", "training.epochs=1", "--set", "training.seed=7", "--set", "split.has_validation=false")
    printed = json.loads(run("train", folder / "small.toml", "--out", folder / "run", "--json", *changes))
    assert (printed["num_epochs"], printed["seed"]) == (1, 7)
    assert printed["picked_by"] == "MRR on the test items themselves, as in the paper"
    assert printed["model"] == str(folder / "run" / "model")
    assert printed["metrics"] == Recommender.load(printed["model"]).card.metrics


def test_a_run_says_that_it_was_continued_and_why_it_ends_early(folder: Path) -> None:
    changes = ("epochs=9", "cosine_epochs=0", "learning_rate=1e-30", "patience=1")
    arguments = ["train", str(folder / "small.toml"), "--out", str(folder / "run")]
    arguments += [word for change in changes for word in ("--set", f"training.{change}")]
    first = CliRunner().invoke(app, arguments, catch_exceptions=False).stderr
    assert "stopped early (training.patience is 1): no validation since epoch 1 was better" in first
    assert "continued" not in first
    again = CliRunner().invoke(app, [*arguments, "--set", "training.patience=2"], catch_exceptions=False).stderr
    assert again.startswith("continued from a checkpoint: 2 of 9 epochs are done")
    assert "stopped early (training.patience is 2)" in again
    assert len(losses(folder / "run")) == 3


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_a_terminal_each_epoch_is_a_line_on_standard_error(folder: Path, options: tuple[str, ...]) -> None:
    arguments = ["train", str(folder / "small.toml"), "--out", str(folder / "run"), *options]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    epochs = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    lines = [line for line in done.stderr.splitlines() if line.startswith("epoch ")]
    assert [line.split()[1] for line in lines] == [f"{epoch['epoch']}/2" for epoch in epochs]
    assert f"MRR {epochs[-1]['validation']['MRR']:.4f}" in lines[-1]
    assert "epoch 1/2" not in done.stdout
    assert not options or json.loads(done.stdout)


def test_by_default_a_run_is_named_after_its_recipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "mine").mkdir()
    shutil.move(folder / "small.toml", folder / "mine" / "small.toml")
    run("train", "mine/small.toml", "--set", "training.epochs=1")
    assert (folder / "runs" / "mine" / "small" / "model" / "config.json").is_file()


def test_done_again_it_goes_on_where_it_was(folder: Path) -> None:
    first = json.loads(run("train", folder / "small.toml", "--out", folder / "run", "--json"))
    before = losses(folder / "run")
    again = json.loads(run("train", folder / "small.toml", "--out", folder / "run", "--json"))
    assert again == first  # seconds and all: nothing was trained
    longer = run("train", folder / "small.toml", "--out", folder / "run", "--json", "--set", "training.epochs=3")
    assert json.loads(longer)["num_epochs"] == 3
    assert losses(folder / "run")[:2] == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.learning_rate=0.1", r"holds a run with learning_rate = 0\.001 but 0\.1 was asked for"),
        ("training.seed=1", "holds a run with seed = 0 but 1 was asked for"),
        ("encoder.dim=16", r"holds a run with encoder\.dim = 8 but 16 was asked for; choose another folder, or rem"),
        ("encoder.kind=hstu", r"holds a run with encoder\.kind = 'sasrec' but 'hstu' was asked for"),
        ("encoder.dropout=0.1", r"holds a run with encoder\.dropout = 0\.2 but 0\.1 was asked for"),
        ("similarity.temperature=0.1", r"holds a run with similarity\.temperature = 0\.05 but 0\.1 was asked for"),
        ("split.has_validation=false", "holds a run with (data|split)"),
    ],
)
def test_the_folder_of_a_run_with_other_settings(folder: Path, change: str, message: str) -> None:
    run("train", folder / "small.toml", "--out", folder / "run", "--set", "training.epochs=1")
    with pytest.raises(InvalidInputError, match=message):
        run("train", folder / "small.toml", "--out", folder / "run", "--set", change)


def test_the_folder_of_a_run_on_other_data(folder: Path) -> None:
    write_prepared(random_walks(lengths=(12, 12)), folder / "other", name="as many users, items and events")
    run("train", folder / "small.toml", "--out", folder / "run", "--set", "training.epochs=1")
    with pytest.raises(InvalidInputError, match=r"holds a run with data = '600 events with checksum \w+' but '600 ev"):
        run("train", folder / "small.toml", "--out", folder / "run", "--data", folder / "other")


@pytest.mark.parametrize("content", ["", "[]", "[1]", "3", "{"])
def test_a_run_that_is_damaged(folder: Path, content: str) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text(content)
    with pytest.raises(InvalidInputError, match=r"run\.json cannot be read .*; choose another folder, or remove"):
        run("train", folder / "small.toml", "--out", folder / "run")


KILLED_AFTER_TWO_EPOCHS = """
import os, signal
from railsearch.cli import main
from railsearch.training.checkpoints import Checkpoints

save = Checkpoints.save

def save_and_die(self, state, best):
    save(self, state, best)
    if state.epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoints.save = save_and_die
main()
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(folder: Path) -> None:
    arguments = [str(folder / "small.toml"), "--set", "training.epochs=6", "--out"]
    command = [sys.executable, "-c", KILLED_AFTER_TWO_EPOCHS, "train", *arguments, str(folder / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((folder / "killed" / "checkpoints").glob("000002-*"))
    assert not (folder / "killed" / "model").exists()
    run("train", *arguments, folder / "killed")
    run("train", *arguments, folder / "whole")
    assert losses(folder / "killed") == losses(folder / "whole")
    weights = [(folder / name / "model" / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert weights[0] == weights[1]


def test_data_that_is_not_there(folder: Path) -> None:
    with pytest.raises(DataFolderError, match="does not exist; give a folder that `railsearch data prepare` wrote"):
        run("train", folder / "small.toml", "--data", folder / "nowhere", "--out", folder / "run")
    (folder / "cycles" / "items.parquet").unlink()
    with pytest.raises(DataFolderError, match=r"items\.parquet does not exist"):
        run("train", folder / "small.toml", "--out", folder / "run")
    (folder / "none.toml").write_text("[training]\nepochs = 1")
    with pytest.raises(InvalidInputError, match=r"the recipe names no data; set data\.folder, or pass path=PATH"):
        run("train", folder / "none.toml")
    assert not (folder / "run").exists()


def test_a_typo_stops_before_any_work(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="epoch is not a setting; choose from"):
        run("train", folder / "small.toml", "--set", "training.epoch=5", "--out", folder / "run")
    with pytest.raises(InvalidInputError, match=r"smal\.toml is neither a file nor a shipped recipe"):
        run("train", folder / "smal.toml")
    assert not (folder / "run").exists()


def test_a_model_folder_that_is_somebody_elses_is_left_alone(folder: Path) -> None:
    (folder / "run" / "model").mkdir(parents=True)
    (folder / "run" / "model" / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds other files than a railsearch recommender"):
        run("train", folder / "small.toml", "--out", folder / "run", "--set", "training.epochs=1")
    assert (folder / "run" / "model" / "thesis.txt").read_text() == "mine"
