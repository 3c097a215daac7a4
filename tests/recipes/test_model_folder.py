"""A recommender as a folder: the same when it is read back, refused when anything in it is not what was written."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch.data import Interactions, leave_last_out
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.errors import StorageError
from railsearch.recommender import Recipe, Recommender, folder
from tests.support.training_worlds import random_walks, small_recipe

WORLD = random_walks(user_name=lambda user: f"user {user}")
FILES = ["README.md", "config.json", "items.parquet", "model.safetensors", "popularity.parquet", "users.parquet"]
PARSED = [name for name in FILES if name != "README.md"]


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit(WORLD, small_recipe("hstu", "mixture-user"))


@pytest.fixture
def saved(recommender: Recommender, tmp_path: Path) -> Path:
    recommender.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("similarity", ["cosine", "mixture", "mixture-user"])
@pytest.mark.parametrize("encoder", ["sasrec", "hstu"])
def test_read_back_it_recommends_the_same_bit_for_bit(encoder: str, similarity: str, tmp_path: Path) -> None:
    recommender = Recommender.fit(WORLD, small_recipe(encoder, similarity, epochs=1))
    recommender.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model", interactions=WORLD)
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == [
        name for name in FILES if name != "users.parquet" or similarity == "mixture-user"
    ]
    for name, tensor in recommender.model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name]), name
    users = WORLD.user_ids[:7].to_list()
    assert loaded.recommend(users, 9).equals(recommender.recommend(users, 9))
    assert loaded.evaluate(leave_last_out(WORLD)).metrics == recommender.card.metrics
    assert (loaded.recipe, loaded.card) == (recommender.recipe, recommender.card)
    assert loaded.report is None


def test_without_interactions_histories_are_needed(recommender: Recommender, saved: Path) -> None:
    loaded = Recommender.load(saved)
    with pytest.raises(InvalidInputError, match=r"no histories of users are available .* pass histories=..., or load"):
        loaded.recommend(["user 1"], 3)
    asked = {"user 1": [1, 2, 3], "nobody": [4]}
    assert loaded.recommend(histories=asked, k=3).equals(recommender.recommend(histories=asked, k=3))
    table = pl.DataFrame({"user": ["user 1", "new"], "item": [1, 2], "timestamp": [10, 20]})
    given = Recommender.load(saved, interactions=table)
    assert given.recommend(["new"], 2).equals(loaded.recommend(histories=table.filter(pl.col("user") == "new"), k=2))


def test_the_items_keep_their_columns(tmp_path: Path) -> None:
    events = pl.DataFrame({"user": [1] * 4 + [2] * 4, "item": ["a", "b", "c", "d"] * 2, "timestamp": list(range(8))})
    catalogue = pl.DataFrame({"item": ["a", "b", "c", "d", "e"], "title": ["A", "B", "C", "D", "E"]})
    recommender = Recommender.fit(Interactions.from_frame(events, catalogue=catalogue), small_recipe(epochs=1))
    recommender.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.items.equals(catalogue)
    found = loaded.build_index(tmp_path / "index").search(loaded.encode([["a"]]), 5).to_frame()
    assert sorted(found["title"]) == ["A", "B", "C", "D", "E"]


def test_nothing_is_replaced_unless_that_is_asked_for(recommender: Recommender, saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"model already exists; choose another path or pass overwrite=True"):
        recommender.save(saved)
    recommender.save(saved, overwrite=True)
    Recommender.load(saved)
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds other files than a railsearch recommender, and will not be rep"):
        recommender.save(saved, overwrite=True)
    assert (saved / "notes.txt").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds other files than a railsearch recommender"):
        recommender.save(tmp_path / "file", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "model"]


@pytest.mark.parametrize("name", PARSED)
def test_a_missing_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(ModelFolderError, match=rf"{name} (does not exist|cannot be read)"):
        Recommender.load(saved)


@pytest.mark.parametrize("name", PARSED)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file(saved: Path, name: str, share: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(ModelFolderError, match=rf"{name} (cannot be read|was changed or damaged)"):
        Recommender.load(saved)


def states_the_same(changed: bytes, content: bytes) -> bool:
    try:
        return bool(json.loads(changed) == json.loads(content))
    except ValueError:  # not JSON, or not any more
        return changed.split() == content.split()


@pytest.mark.parametrize("name", PARSED)
def test_a_changed_byte_anywhere(saved: Path, name: str) -> None:
    content = (saved / name).read_bytes()
    for place in range(0, len(content) - 2, max(1, len(content) // 60)):
        changed = bytearray(content)
        changed[place] ^= 1
        if states_the_same(bytes(changed), content):
            continue  # a space that became another one, or a last digit that no number needs
        (saved / name).write_bytes(bytes(changed))
        with pytest.raises(ModelFolderError):
            Recommender.load(saved)
    (saved / name).write_bytes(content)
    Recommender.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config["recipe"]["similarity"].update(temperature=0.1), "config.json was changed or damaged"),
        (lambda config: config["card"]["metrics"].update({"HR@10": 1.0}), "config.json was changed or damaged"),
        (lambda config: config.update(format="other"), "is not the config of a railsearch recommender"),
        (lambda config: config.update(format_version=99), "has format version 99 but this railsearch reads 2"),
        (lambda config: config.pop("checksum"), "config.json was changed or damaged"),
    ],
)
def test_a_changed_config(saved: Path, change: object, message: str) -> None:
    config = json.loads((saved / "config.json").read_text())
    change(config)
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError, match=message):
        Recommender.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["recipe"]["encoder"].update(dim=17),
        lambda config: config["recipe"]["encoder"].update(width=3),
        lambda config: config["recipe"]["encoder"].update(num_blocks=1),
        lambda config: config["recipe"].update(encoder={"kind": "unknown"}),
        lambda config: config.update(recipe=[1]),
        lambda config: config.update(files=None),
        lambda config: config["card"].pop("seed"),
        lambda config: config["card"].update(mood="good"),
        lambda config: config["files"].pop("model.safetensors"),
        lambda config: config["files"].pop("items.parquet"),
        lambda config: config["files"].update({"../../secret": "0"}),
        lambda config: config["files"].update({"model.safetensors": 5}),
    ],
)
def test_a_config_that_somebody_forged(saved: Path, change: object) -> None:
    config = json.loads((saved / "config.json").read_text())
    del config["checksum"]
    change(config)
    folder.FORMAT.write(saved, config)
    with pytest.raises(ModelFolderError):
        Recommender.load(saved)


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "[" * 100_000, '{"format": 3}'])
def test_a_config_that_is_none(saved: Path, content: str) -> None:
    (saved / "config.json").write_text(content)
    with pytest.raises(ModelFolderError, match=r"config\.json (cannot be read|is not the config)"):
        Recommender.load(saved)


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"config\.json does not exist; give a folder that Recommender\.save wr"):
        Recommender.load(tmp_path)
    with pytest.raises(ModelFolderError, match=r"config\.json does not exist"):
        Recommender.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFolderError, match=r"config\.json (cannot be read|does not exist)"):
        Recommender.load(tmp_path / "file")
    with pytest.raises(InvalidInputError, match="path is 5; give the name of a folder"):
        Recommender.load(5)


def test_weights_of_another_model_are_refused(recommender: Recommender, saved: Path, tmp_path: Path) -> None:
    other = Recommender.fit(WORLD, small_recipe("sasrec", "cosine", epochs=1))
    other.save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.safetensors", saved)
    with pytest.raises(ModelFolderError, match=r"model\.safetensors was changed or damaged"):
        Recommender.load(saved)


@pytest.mark.slow
def test_a_kill_while_saving_leaves_the_old_model(recommender: Recommender, saved: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from railsearch.recommender import Recommender, folder\n"
        "loaded = Recommender.load(sys.argv[1])\n"
        "folder.ModelCard.to_markdown = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "loaded.save(sys.argv[1], overwrite=True)\n"
    )
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    killed = subprocess.run([sys.executable, "-c", program, str(saved)], check=False, capture_output=True)
    assert killed.returncode == -9, killed.stderr
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    Recommender.load(saved).save(saved, overwrite=True)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_folder_that_cannot_be_written(recommender: Recommender, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match=r"cannot be written .* nothing was changed"):
        recommender.save(tmp_path / "file" / "model")


def test_the_card_says_what_was_done(recommender: Recommender, saved: Path) -> None:
    card = (saved / "README.md").read_text()
    data, quality, training = card.split("\n## ")[1:]
    assert f"{len(WORLD)} events of 50 users with 40 items" in data
    assert f"{leave_last_out(WORLD).num_train_events} were trained on; 0 rows were skipped as bad" in data
    assert leave_last_out(WORLD).protocol in quality
    assert f"Epoch {recommender.card.best_epoch} of 2, picked by MRR on validation items." in quality
    for name, value in recommender.card.metrics.items():
        assert f"| {name} | {value:.4f} |" in quality
    assert "seed 0" in training
    assert f"torch {torch.__version__}" in training
    for setting in ("kind hstu", "learning_rate 0.01", "temperature 0.05", "num_negatives 16", "user_table_size 50"):
        assert setting in training
    assert json.loads((saved / "config.json").read_text())["card"]["metrics"] == recommender.card.metrics


def test_the_card_owns_up_to_an_epoch_that_the_test_picked() -> None:
    recipe = Recipe(**{**small_recipe(epochs=1).model_dump(), "split": {"has_validation": False}})
    recommender = Recommender.fit(WORLD, recipe)
    card = recommender.card.to_markdown(recommender.recipe)
    assert "picked by MRR on the test items themselves, as in the paper" in card
    assert "once" not in card.lower()


@pytest.mark.parametrize(("setting", "value"), [("num_blocks", 1000), ("dim", 10**6), ("dim", 10**9)])
def test_absurd_sizes_are_refused_before_they_take_memory(saved: Path, setting: str, value: int) -> None:
    config = folder.FORMAT.read(saved)
    config["recipe"]["encoder"][setting] = value
    folder.FORMAT.write(saved, config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFolderError, match=r"num_blocks is 1000 but there are \d+ weights|another model|dim is"):
        Recommender.load(saved)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # kB
