"""`railsearch recipes`: list, show and copy what comes with the package; `railsearch train` takes a name."""

import json
import tomllib
from pathlib import Path

import pytest

from railsearch.data import write_prepared
from railsearch.errors import InvalidInputError
from railsearch.recipes import shipped_recipe, shipped_recipes
from tests.support.commands import run, run_main
from tests.support.cycles import cycles


def test_list() -> None:
    expected = [{"name": recipe.name, "about": recipe.about} for recipe in shipped_recipes()]
    assert json.loads(run("recipes", "list", "--json")) == {"recipes": expected}
    text = run("recipes", "list")
    for recipe in shipped_recipes():
        assert recipe.name in text


def test_show() -> None:
    recipe = shipped_recipe("ml-1m/hstu-mol")
    assert run("recipes", "show", recipe.name) == recipe.text
    printed = json.loads(run("recipes", "show", recipe.name, "--json"))
    assert printed == {"name": recipe.name, "about": recipe.about, "settings": tomllib.loads(recipe.text)}
    with pytest.raises(InvalidInputError, match="did you mean ml-1m/hstu-mol"):
        run("recipes", "show", "ml-1m/hstumol")


def test_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("recipes", "copy", "ml-1m/hstu-mol") == "copied: hstu-mol.toml\n"
    assert (tmp_path / "hstu-mol.toml").read_text() == shipped_recipe("ml-1m/hstu-mol").text
    assert run_main("recipes", "copy", "ml-1m/hstu-mol") == 2
    assert capsys.readouterr().err == (
        "error: hstu-mol.toml already exists; choose another path or pass --overwrite.\n"
    )
    printed = run("recipes", "copy", "ml-1m/hstu", "hstu-mol.toml", "--overwrite", "--json")
    assert json.loads(printed) == {"name": "ml-1m/hstu", "file": "hstu-mol.toml"}
    assert (tmp_path / "hstu-mol.toml").read_text() == shipped_recipe("ml-1m/hstu").text


@pytest.mark.parametrize("command", ["list", "show", "copy"])
def test_help_has_an_example(command: str) -> None:
    text = run("recipes", command, "--help")
    assert f"Example: railsearch recipes {command}" in text
    assert "--json" in text


def test_train_takes_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_prepared(cycles(), tmp_path / "cycles", name="cycles")
    small = ["encoder.dim=8", "encoder.max_length=10", "training.epochs=1", "training.num_negatives=8"]
    changes = [part for change in small for part in ("--set", change)]
    printed = json.loads(run("train", "ml-1m/sasrec", "--data", "cycles", "--json", *changes))
    assert printed["model"] == "runs/ml-1m/sasrec/model"
    assert (tmp_path / printed["model"] / "config.json").is_file()
