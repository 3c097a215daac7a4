"""`railsearch similar`, used as people would, rightly and wrongly."""

import json
from pathlib import Path

import polars as pl
import pytest

from railsearch import Index, MixtureOfLogits
from railsearch.data import Interactions
from railsearch.distributed import shard_index
from railsearch.recommender import Recommender
from tests.support.commands import run, run_main
from tests.support.search_worlds import make_world
from tests.support.split_worlds import numbered
from tests.support.training_worlds import random_walks, small_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("similar")
    plain = random_walks()
    events = pl.DataFrame(
        {"user": plain.users.numpy(), "item": [f"m{item}" for item in plain.items.tolist()],
         "timestamp": plain.timestamps.numpy()}
    )  # fmt: skip
    titles = pl.DataFrame(
        {"item": [f"m{item}" for item in range(40)], "title": [f"Title {item}" for item in range(40)]}
    )
    world = Interactions.from_frame(events, catalogue=titles)
    recommender = Recommender.fit(world, small_recipe("hstu", "mixture", epochs=1))
    recommender.save(folder / "model")
    recommender.build_index(folder / "model.index")
    similarity, items, _ = make_world("random", 40, 0)
    assert isinstance(similarity, MixtureOfLogits)
    index = Index.build(similarity, items, path=folder / "items.index", metadata=numbered(40))
    shard_index(index, folder / "shards", 3)
    return folder


def test_of_a_recommender(folder: Path) -> None:
    expected = Recommender.load(folder / "model").similar_items(["m3", "m7"], 4, exclude=["m1", "gone"])
    for more in ((), ("--index", folder / "model.index")):
        printed = json.loads(
            run("similar", folder / "model", "m3", "m7", "-k", 4, "--exclude", "m1, gone", "--json", *more)
        )
        found = pl.DataFrame(printed["similar"])
        assert found.columns == ["item", "similar", "score", "rank", "title"]
        assert found["similar"].to_list() == expected["similar"].to_list()
        assert "m1" not in found["similar"].to_list()
        assert found["title"][0] == f"Title {expected['similar'][0][1:]}"
    assert expected["item"].to_list() == ["m3"] * 4 + ["m7"] * 4
    assert expected["rank"].to_list() == [1, 2, 3, 4] * 2


def test_items_may_have_columns_of_the_answer(folder: Path, tmp_path: Path) -> None:
    recommender = Recommender.load(folder / "model")
    recommender.items = recommender.items.with_columns(similar=pl.lit("own"), score=pl.lit(7), rank=pl.lit(8))
    recommender.save(tmp_path / "model")
    found = json.loads(run("similar", tmp_path / "model", "m3", "-k", 2, "--json"))["similar"]
    assert list(found[0]) == [
        "item", "similar", "score", "rank", "title", "similar_of_item", "score_of_item", "rank_of_item",
    ]  # fmt: skip
    assert [(row["rank"], row["similar_of_item"], row["rank_of_item"]) for row in found] == [
        (1, "own", 8),
        (2, "own", 8),
    ]


def test_of_an_index_and_its_shards(folder: Path) -> None:
    arguments = ("7", "9", "-k", 3, "--allow", "year < 5", "--exclude", "8", "--json")
    whole, split = (
        json.loads(run("similar", folder / name, *arguments))["similar"] for name in ("items.index", "shards")
    )
    assert whole == split
    assert [row["similar_to"] for row in whole] == [7, 7, 7, 9, 9, 9]
    assert all(row["year"] < 5 for row in whole)
    assert "year" in run("similar", folder / "items.index", 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model", "m99"), "item 'm99' is not among the 40 items of the index."),
        (("items.index", "m9"), "'m9' but the ids of this index are integers; give integers, or"),
        (("items.index", "9", "-k", 40), "k is 40 but an item has only 39 others in this index; ask for -k <= 39"),
        (("items.index", "9", "--index", "x"), "is an index itself; omit --index"),
        (("model", "m9", "--engine", "Flat"), "add --index, or omit --engine"),
        (("nothing", "1"), "does not exist"),
    ],
)
def test_wrong_requests(
    folder: Path, arguments: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main("similar", folder / str(arguments[0]), *arguments[1:]) != 0
    found = " ".join(capsys.readouterr().err.split())
    assert message.replace("-k <=", "k <=") in found.replace("-k <=", "k <=")


def test_a_recommender_refuses_shards(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (("similar", folder / "model", "m1"), ("recommend", folder / "model", "--history", "m1")):
        assert run_main(*command, "--index", folder / "shards") != 0
        message = " ".join(capsys.readouterr().err.split())
        assert "is split into shards, but a recommender searches an index in one folder; open the index that" in message


def test_a_folder_of_another_kind_is_named_with_its_article(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("export", folder / "items.index", folder / "query.onnx") != 0
    assert "holds an Index; give a recommender" in " ".join(capsys.readouterr().err.split())
