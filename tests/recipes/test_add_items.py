"""New items: recommended as soon as they are added, with a model and an index that fit together at every moment."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Index, Recommender
from railsearch.data import Interactions
from railsearch.errors import FingerprintError, IdExistsError, InvalidInputError, StorageError
from railsearch.foundation.files import only_changer
from tests.support.commands import run, run_main
from tests.support.content_worlds import COLUMN, NUM_KINDS, content_events, content_items, content_recipe
from tests.support.training_worlds import Naming, random_walks, small_recipe

NUM_NEW = 4


def world(item_name: Naming = int) -> tuple[Interactions, pl.DataFrame]:
    """Events with 40 items of four kinds, and four new items whose ids are not after those of the others."""
    items = content_items(num_items=44, item_name=item_name)
    new = items.tail(NUM_NEW)
    return content_events(items.head(40)), new


EVENTS, NEW = world(lambda item: 3 * item if item < 40 else 3 * (item - 40) + 1)  # new: 1, 4, 7, 10


@pytest.fixture(scope="module")
def trained() -> Recommender:
    return Recommender.fit(EVENTS, content_recipe(item_ids=False, epochs=6))


@pytest.fixture
def recommender(trained: Recommender, tmp_path: Path) -> Recommender:
    """A recommender of its own, loaded from its folder."""
    trained.save(tmp_path / "model")
    return Recommender.load(tmp_path / "model")


def best(recommender: Recommender, history: list[object], k: int = 11) -> list[object]:
    return recommender.recommend(histories=[history], k=k, filter_viewed=False)["item"].to_list()


@pytest.mark.parametrize(("encoder", "similarity"), [("sasrec", "mixture"), ("hstu", "cosine")])
def test_a_grown_model_is_the_one_before_for_all_other_items(encoder: str, similarity: str) -> None:
    recommender = Recommender.fit(EVENTS, content_recipe(encoder, similarity, epochs=1))
    asked = [[0, 3, 6], [9]]
    queries, embeddings = recommender.encode(asked), recommender.model.encoder.embed_items()
    added = recommender.add_items(NEW)
    assert (added.num_added, added.num_indexed, added.num_items) == (4, 0, 44)
    assert added.fingerprint == recommender.fingerprint
    assert torch.equal(recommender.encode(asked), queries)
    torch.testing.assert_close(recommender.model.encoder.embed_items()[:40], embeddings)
    assert recommender.items["item"].to_list()[40:] == NEW["item"].to_list()
    assert recommender.item_counts[40:].tolist() == [0] * 4


@pytest.mark.parametrize("item_name", [int, "item {}".format], ids=["numbers", "text"])
def test_new_items_are_recommended_at_once(item_name: Naming, tmp_path: Path) -> None:
    events, new = world(item_name)
    recommender = Recommender.fit(events, content_recipe(item_ids=False, epochs=6), save_to=tmp_path / "model")
    recommender.build_index(tmp_path / "index")
    of_a_kind = [item_name(item) for item in range(1, 44, NUM_KINDS)]
    assert new["item"][1] not in best(recommender, of_a_kind[:3])
    added = recommender.add_items(new)
    assert (added.num_indexed, added.index_version) == (4, 2)
    assert set(best(recommender, of_a_kind[:3])) == set(of_a_kind)
    loaded = Recommender.load(tmp_path / "model")
    index = loaded.open_index(tmp_path / "index")
    assert index.source["model"] == loaded.fingerprint
    assert best(loaded, of_a_kind[:3]) == best(recommender, of_a_kind[:3])
    found = loaded.search([of_a_kind[:3]], k=11).to_frame()
    assert set(found["item"]) == set(of_a_kind)
    assert set(found["title"]) == {f"title {item}" for item in range(1, 44, NUM_KINDS)}
    rebuilt = Recommender.load(tmp_path / "model").search([of_a_kind[:3]], k=44)
    torch.testing.assert_close(loaded.search([of_a_kind[:3]], k=44).scores, rebuilt.scores)


def test_items_may_have_ids_and_features_alone(tmp_path: Path) -> None:
    items = content_items(num_items=44).select("item", COLUMN)
    recommender = Recommender.fit(content_events(items.head(40)), content_recipe(epochs=1), save_to=tmp_path / "model")
    recommender.build_index(tmp_path / "index")
    added = recommender.add_items(items.tail(NUM_NEW))
    assert (added.num_added, added.num_indexed, added.num_items) == (4, 4, 44)
    assert set(items["item"].tail(NUM_NEW)) <= set(best(recommender, [0, 1], k=44))


def test_histories_and_evaluation_know_new_items(recommender: Recommender) -> None:
    recommender.add_items(NEW)
    later = NEW["item"][1]
    assert later not in recommender.recommend(histories=[[3, 15, later]], k=5)["item"].to_list()
    assert set(best(recommender, [later])) == {3 * item for item in range(1, 40, NUM_KINDS)} | {later}
    table = pl.DataFrame({"user": [1, 1, 1, 1], "item": [3, 15, 27, later], "timestamp": [1, 2, 3, 4]})
    evaluation = recommender.evaluate(Interactions.from_frame(table))
    ranked = recommender.recommend(histories=[[3, 15, 27]], k=41)["item"].to_list()
    assert evaluation.metrics["MRR"] == pytest.approx(1 / (1 + ranked.index(later)))
    assert "40 items of the model without events are ranked too" in evaluation.protocol
    with pytest.raises(InvalidInputError, match=r"not among the 44 of this model, such as 5"):
        recommender.evaluate(Interactions.from_frame(table.with_columns(item=pl.col("item") + 1)))


def test_popular_items_and_similar_items_after_an_addition(recommender: Recommender) -> None:
    recommender.add_items(NEW)
    popular = recommender.recommend(histories=[[]], k=44, cold_start="popular")
    assert sorted(popular["item"].to_list()) == sorted(recommender.items["item"].to_list())
    similar = recommender.similar_items(NEW["item"][1], k=10)
    assert {item % 12 for item in similar["similar"]} == {3}


def test_the_same_call_again_changes_nothing(recommender: Recommender, tmp_path: Path) -> None:
    recommender.build_index(tmp_path / "index")
    first = recommender.add_items(NEW)
    again = recommender.add_items(NEW.reverse())
    assert (again.num_added, again.num_indexed, again.index_version) == (0, 0, first.index_version)
    assert again.fingerprint == first.fingerprint
    with pytest.raises(IdExistsError, match=r"item 1 is already in the model \(4 of the 4 items are\)"):
        recommender.add_items(NEW.with_columns(pl.col(COLUMN).list.reverse()))
    with pytest.raises(IdExistsError, match="item 1 is already in the model"):
        recommender.add_items(NEW.with_columns(title=pl.lit("another")))


def test_a_kill_between_model_and_index_is_repaired_by_the_same_call(
    recommender: Recommender, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, place = tmp_path / "model", tmp_path / "index"
    recommender.build_index(place)
    Recommender.load(folder).add_items(NEW.head(2))  # without the index, as if the process had been killed
    opened = Recommender.load(folder)
    opened.open_index(place)
    assert "lacks 2 items that were added to its model, such as 1" in caplog.text
    assert len(best(opened, [0, 3])) == 11
    repaired = opened.add_items(NEW.head(2))
    assert (repaired.num_added, repaired.num_indexed) == (0, 2)
    Recommender.load(folder).add_items(NEW[2:3])
    last = Recommender.load(folder)
    last.open_index(place)
    added = last.add_items(NEW[3:])
    assert (added.num_added, added.num_indexed, added.num_items) == (1, 2, 44)
    assert len(Index.open(place)) == 44


def test_an_index_of_another_branch_is_refused(recommender: Recommender, tmp_path: Path) -> None:
    recommender.build_index(tmp_path / "index")
    recommender.save(tmp_path / "copy")
    other = Recommender.load(tmp_path / "copy")
    other.add_items(NEW.head(1))
    recommender = Recommender.load(tmp_path / "model")
    recommender.open_index(tmp_path / "index")
    recommender.add_items(NEW.tail(1))
    with pytest.raises(FingerprintError, match=r"was built by recommender .* but this is"):
        other.open_index(tmp_path / "index")
    with pytest.raises(FingerprintError):
        Recommender.load(tmp_path / "copy").open_index(tmp_path / "index")


def test_two_processes_never_lose_items(recommender: Recommender, tmp_path: Path) -> None:
    other = Recommender.load(tmp_path / "model")
    other.add_items(NEW.head(1))
    with pytest.raises(FingerprintError, match="it was changed since it was loaded; load it again"):
        recommender.add_items(NEW.tail(1))
    assert len(recommender.items) == 40
    with (
        only_changer(tmp_path / "model"),
        pytest.raises(StorageError, match=r"another process is adding items to .*model; wait until it is done"),
    ):
        other.add_items(NEW.tail(1))
    assert len(Recommender.load(tmp_path / "model").items) == 41


@pytest.mark.parametrize("error", [StorageError("the disk is full; free some space."), OSError("the disk is full")])
def test_a_failure_of_the_index_says_how_to_go_on(
    error: OSError, recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = recommender.build_index(tmp_path / "index")

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(type(index.contents), "put", fail)
        with pytest.raises(
            StorageError, match=r"in the model but not in the index \(the disk is full.*add_items again"
        ) as raised:
            recommender.add_items(NEW)
    assert "nothing was changed" not in str(raised.value)
    assert len(Recommender.load(tmp_path / "model").items) == len(recommender.items) == 44
    assert recommender.add_items(NEW).num_indexed == 4


def test_a_folder_that_cannot_be_locked_is_unchanged(
    recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("railsearch.recommender.adding.only_changer", fail)
    with pytest.raises(StorageError, match=r"model cannot be changed \(Permission denied\); nothing was changed"):
        recommender.add_items(NEW)
    assert len(Recommender.load(tmp_path / "model").items) == 40


def test_a_model_without_folder_adds_to_an_index_in_memory_only(trained: Recommender, tmp_path: Path) -> None:
    recommender = Recommender.fit(EVENTS, content_recipe(epochs=0))
    recommender.build_index()
    assert recommender.add_items(NEW.head(2)).num_indexed == 2
    assert recommender.index.source["model"] == recommender.fingerprint
    recommender.build_index(tmp_path / "index")
    with pytest.raises(InvalidInputError, match="the model was never saved"):
        recommender.add_items(NEW.tail(2))
    recommender.save(tmp_path / "model")
    assert recommender.add_items(NEW.tail(2)).num_indexed == 2


def test_an_item_that_only_the_index_has_is_refused(recommender: Recommender, tmp_path: Path) -> None:
    index = recommender.build_index(tmp_path / "index")
    index.add(torch.ones(1, 16), [1], metadata=pl.DataFrame({"item": [1], "title": ["foreign"]}))
    with pytest.raises(IdExistsError, match="index has an item with id 1 but the model does not know it"):
        recommender.add_items(NEW)
    assert len(Recommender.load(tmp_path / "model").items) == 40


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (NEW.with_columns(item=pl.Series([1, 4, 7, 3])), r"item 3 is already in the model \(1 of the 4 items are\)"),
        (NEW.with_columns(item=pl.Series([1, 4, 7, 7])), "items has 7 more than once"),
        (NEW.with_columns(item=pl.Series([1, 4, 7, None])), "items has no id in row 3"),
        (NEW.with_columns(item=pl.Series([1, 4, 7, -1])), "items has id -1 but all ids of the model are 0 or more"),
        (NEW.with_columns(item=pl.Series(["a", "b", "c", "d"])), "items has String ids but the model has Int64 ones"),
        (NEW.with_columns(pl.col(COLUMN).list.head(3)), "has 3 numbers for each item but the model takes 4"),
        (NEW.drop(COLUMN), "encoder.item_features is 'content' but the table of items has no such column"),
        (NEW.drop("item"), "items has no column 'item'"),
        (NEW.drop("title"), "items has the other columns none but the model has title"),
        (NEW.with_columns(year=1), "items has the other columns title, year but the model has title"),
        (NEW.head(0), "items has 0 rows"),
        ([1, 2], "items is a list; give a table"),
    ],
)
def test_refuses_what_cannot_be_added(recommender: Recommender, items: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        recommender.add_items(items)
    assert len(recommender.items) == 40


def test_a_model_without_features_says_how_to_get_them() -> None:
    plain = Recommender.fit(random_walks(), small_recipe(similarity="cosine", epochs=0))
    with pytest.raises(InvalidInputError, match=r"knows items by their ids only.*train it with encoder.item_features"):
        plain.add_items(NEW)


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_a_model_and_an_index_that_work(
    recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every state that the files go through is copied, just before each rename and each flush to disk."""
    live, states = tmp_path / "live", tmp_path / "states"
    recommender.save(live / "model")
    recommender.build_index(live / "index")
    steps: list[str] = []

    def watched(function: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            steps.append(function.__name__)
            shutil.copytree(live, states / str(len(steps)))
            return function(*arguments, **options)

        return step

    with monkeypatch.context() as watching:
        watching.setattr(os, "fsync", watched(os.fsync))
        for name in ("rename", "replace"):
            watching.setattr(Path, name, watched(getattr(Path, name)))
        recommender.add_items(NEW)
    assert {"fsync", "rename", "replace"} <= set(steps)
    for place in states.iterdir():
        survivor = Recommender.load(place / "model")
        index = survivor.open_index(place / "index")
        assert (len(survivor.items), len(index)) in {(40, 40), (44, 40), (44, 44)}
        assert len(best(survivor, [0, 3])) == 11
        survivor.add_items(NEW)
        assert len(Recommender.load(place / "model").open_index(place / "index")) == 44


def test_the_command_adds_items(recommender: Recommender, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, place, new = tmp_path / "model", tmp_path / "index", tmp_path / "new.parquet"
    recommender.build_index(place)
    NEW.write_parquet(new)
    printed = json.loads(run("items", "add", model, "--items", new, "--index", place, "--json"))
    assert (printed["num_added"], printed["num_indexed"], printed["index_version"]) == (4, 4, 2)
    assert printed["fingerprint"] == Recommender.load(model).fingerprint
    text = " ".join(run("items", "add", model, "--items", new, "--index", place).split())
    assert "added items 0 items now 44" in text
    assert run_main("items", "add", model, "--items", tmp_path / "new.csv") != 0
    assert "new.csv does not exist" in capsys.readouterr().err
    NEW.select("item").write_csv(tmp_path / "new.csv")
    assert run_main("items", "add", model, "--items", tmp_path / "new.csv") != 0
    assert "ends in .csv; give a Parquet or Arrow table (.parquet," in " ".join(capsys.readouterr().err.split())
    found = json.loads(run("recommend", model, "--index", place, "--history", "3,15", "-k", 9, "--json"))
    assert {4} < {row["item"] for row in found["recommendations"]}
    NEW.with_columns(title=pl.lit("another")).write_parquet(new)
    assert run_main("items", "add", model, "--items", new) != 0
    assert "item 1 is already in the model (4 of the 4 items are)" in " ".join(capsys.readouterr().err.split())


def test_the_command_completes_an_index_without_a_warning(
    recommender: Recommender, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, place, new = tmp_path / "model", tmp_path / "index", tmp_path / "new.parquet"
    recommender.build_index(place)
    Recommender.load(model).add_items(NEW)  # without the index, as if the process had been killed
    NEW.write_parquet(new)
    printed = json.loads(run("items", "add", model, "--items", new, "--index", place, "--json"))
    assert (printed["num_added"], printed["num_indexed"]) == (0, 4)
    assert "lacks" not in caplog.text
