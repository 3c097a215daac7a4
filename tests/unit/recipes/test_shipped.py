"""Shipped recipes: found by name, copied without loss, and files of the user come first."""

from pathlib import Path

import pytest

from railsearch.errors import InvalidInputError, StorageError
from railsearch.recipes import copy_recipe, read_recipe, recipe_file, shipped_recipe, shipped_recipes


def test_every_recipe_has_a_name_and_a_sentence_and_can_be_read() -> None:
    recipes = shipped_recipes()
    names = [recipe.name for recipe in recipes]
    assert names == sorted(names)
    assert len(names) == len(set(names)) >= 18
    for recipe in recipes:
        assert recipe.file == recipe_file(recipe.name) == shipped_recipe(recipe.name).file
        assert recipe.name == f"{recipe.file.parent.name}/{recipe.file.stem}"
        assert 20 <= len(recipe.about) <= 160
        assert "#" not in recipe.about
        assert read_recipe(recipe.name) == read_recipe(recipe.file)
    assert len({recipe.about for recipe in recipes}) == len(recipes)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("ml-1m/hstu-moll", "did you mean ml-1m/hstu-mol"),
        ("hstu-mol", r"did you mean amazon/hstu-mol or books/hstu-mol or .* or ml-20m/hstu-mol\?"),
        ("recipes/ml-1m/hstu.toml", "did you mean ml-1m/hstu "),
        ("zzz", r"choose from: .*books/hstu, .*, ml-20m/sasrec-mol\.$"),
        ("../recipes/ml-1m/hstu", "did you mean ml-1m/hstu "),
        ("", "choose from: .*books/hstu, "),
    ],
)
def test_unknown_names_are_answered_with_close_ones(name: str, advice: str) -> None:
    with pytest.raises(InvalidInputError, match=f"there is no shipped recipe '{name}'; .*{advice}"):
        shipped_recipe(name)


def test_neither_a_file_nor_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = (
        "ml-1m/hstu-moll is neither a file nor a shipped recipe; give a TOML file or a shipped name: did you mean ml"
    )
    for call in (recipe_file, read_recipe):
        with pytest.raises(InvalidInputError, match=message):
            call("ml-1m/hstu-moll")
    with pytest.raises(InvalidInputError, match="cannot be read as TOML"):
        read_recipe(tmp_path)


def test_a_file_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = Path("ml-1m/sasrec")
    own.mkdir(parents=True)
    assert recipe_file("ml-1m/sasrec") == shipped_recipe("ml-1m/sasrec").file  # a folder is no recipe
    own.rmdir()
    own.write_text("[training]\nepochs = 77")
    assert recipe_file("ml-1m/sasrec") == own
    assert read_recipe("ml-1m/sasrec").training.epochs == 77


def test_a_copy_has_the_same_bytes_and_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = shipped_recipe("ml-1m/hstu-mol")
    (tmp_path / "folder").mkdir()
    copies = [
        copy_recipe(recipe.name),
        copy_recipe(recipe.name, "folder"),
        copy_recipe(recipe.name, tmp_path / "new" / "mine.toml"),
    ]
    assert copies == [Path("hstu-mol.toml"), Path("folder/hstu-mol.toml"), tmp_path / "new" / "mine.toml"]
    for copied in copies:
        assert copied.read_bytes() == recipe.file.read_bytes()
        copied.write_text("mine")
        target = "folder" if copied.parent.name == "folder" else copied
        with pytest.raises(InvalidInputError, match="already exists; choose another path or pass overwrite=True"):
            copy_recipe(recipe.name, target)
        assert copied.read_text() == "mine"
        assert copy_recipe(recipe.name, target, overwrite=True) == copied
        assert copied.read_text() == recipe.text
    (tmp_path / "folder" / "hstu.toml").mkdir()
    with pytest.raises(InvalidInputError, match="already exists"):
        copy_recipe("ml-1m/hstu", "folder", overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "hstu-mol.toml", "hstu-mol.toml", "mine.toml",
    ]  # fmt: skip


def test_a_copy_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be written .*; nothing was changed"):
        copy_recipe("ml-1m/hstu", tmp_path / "file" / "mine.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
