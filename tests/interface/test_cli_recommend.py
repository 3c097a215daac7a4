"""`railsearch recommend` and `railsearch evaluate`, used as people would, rightly and wrongly."""

import json
from pathlib import Path

import polars as pl
import pytest

from railsearch import MaxPer
from railsearch.data import Interactions, leave_last_out, write_prepared
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.recommender import Recommender
from tests.support.commands import run, run_main
from tests.support.training_worlds import random_walks, small_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recommend")
    plain = random_walks()
    events = pl.DataFrame(
        {"user": plain.users.numpy(), "item": plain.items.numpy(), "timestamp": plain.timestamps.numpy()}
    )
    titles = pl.DataFrame(
        {
            "item": range(40),
            "title": [f"[bold]Title {item}" for item in range(40)],
            "kind": [item % 3 for item in range(40)],
            "kinds": ["a|b", "b", "c"] * 13 + ["d"],
        }
    )
    world = Interactions.from_frame(events, catalogue=titles)
    write_prepared(world, folder / "data", name="walks")
    Recommender.fit(world, small_recipe("hstu", "mixture-user", epochs=1)).save(folder / "model")
    return folder


@pytest.fixture(scope="module")
def recommender(folder: Path) -> Recommender:
    return Recommender.load(folder / "model", interactions=random_walks())


def test_after_a_history(folder: Path, recommender: Recommender) -> None:
    expected = recommender.recommend(histories=[[3, 1, 4], [1]], k=5)
    printed = json.loads(run("recommend", folder / "model", "--history", "3,1,4", "--history", " 1", "-k", 5, "--json"))
    found = pl.DataFrame(printed["recommendations"])
    assert found.columns == ["user", "item", "score", "rank", "title", "kind", "kinds"]
    assert found["item"].to_list() == expected["item"].to_list()
    assert found["title"][0] == f"[bold]Title {expected['item'][0]}"
    text = run("recommend", folder / "model", "--history", "3,1,4", "-k", 5)
    assert [line.split()[1] for line in text.splitlines()[1:]] == [str(item) for item in expected["item"][:5]]
    assert f"[bold]Title {expected['item'][0]}" in text


def test_to_users(folder: Path, recommender: Recommender) -> None:
    printed = json.loads(
        run("recommend", folder / "model", "--users", "7, 3", "--data", folder / "data", "-k", 4, "--json")
    )
    expected = recommender.recommend([7, 3], 4)
    assert pl.DataFrame(printed["recommendations"])["item"].to_list() == expected["item"].to_list()


def test_to_users_without_a_history(folder: Path, recommender: Recommender, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("recommend", folder / "model", "--users", "7,99", "--data", folder / "data", "-k", 4, "--json")
    assert run_main(*arguments) != 0
    message = " ".join(capsys.readouterr().err.split())
    assert "users[1] is '99', whose history is unknown; pass it as --history, or pass --cold-start popular" in message
    assert "--cold-start popular" in message
    printed = json.loads(run(*arguments, "--cold-start", "popular"))
    expected = recommender.recommend([7, 99], 4, cold_start="popular")
    assert pl.DataFrame(printed["recommendations"])["item"].to_list() == expected["item"].to_list()


def test_from_an_index_with_a_condition(folder: Path, recommender: Recommender) -> None:
    built = json.loads(run("index", "build", folder / "items.index", "--model", folder / "model", "--json"))
    assert built["items"] == 40
    assert f"model: {recommender.fingerprint}" in built["source"]
    arguments = ("recommend", folder / "model", "--history", "3,1,4", "-k", 3, "--allow", "item >= 20", "--json")
    printed = json.loads(run(*arguments, "--index", folder / "items.index"))
    expected = recommender.recommend(histories=[[3, 1, 4]], k=3, allow=list(range(20, 40)))
    assert [row["item"] for row in printed["recommendations"]] == expected["item"].to_list()
    assert json.loads(run(*arguments)) == printed
    of_engine = run(*arguments, "--index", folder / "items.index", "--engine", "Faiss(flat)", "--strategy", "TwoPass")
    found = json.loads(of_engine)["recommendations"]
    assert [row["item"] for row in found] == expected["item"].to_list()


def test_viewed_and_unknown_items(folder: Path, recommender: Recommender) -> None:
    arguments = ("recommend", folder / "model", "-k", 40, "--json", "--history")
    with pytest.raises(InvalidInputError, match="has item '99', which the model does not know"):
        run(*arguments, "3,99")
    everything = json.loads(run(*arguments, "3,99", "--ignore-unknown", "--keep-viewed"))["recommendations"]
    assert sorted(row["item"] for row in everything) == list(range(40))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give exactly one of users and histories"),
        (["--users", "1"], "--users needs their histories; add --data"),
        (["--history", "1", "--engine", "Faiss(flat)"], "--engine searches an index on disk; add --index"),
        (["--history", "1", "--strategy", "Best"], "there is no strategy 'Best'"),
        (["--history", ""], r"histories\[0\] has no events"),
        (["--history", "1", "-k", "41"], "k is 41 but there are 40 items; ask for k <= 40"),
    ],
)
def test_what_cannot_work(folder: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run("recommend", folder / "model", *arguments)


def test_evaluate(folder: Path, recommender: Recommender) -> None:
    expected = recommender.evaluate(leave_last_out(random_walks()))
    printed = json.loads(run("evaluate", folder / "model", "--data", folder / "data", "--json"))
    assert printed["metrics"] == expected.metrics == recommender.card.metrics
    assert (printed["protocol"], printed["num_queries"]) == (expected.protocol, 50)
    text = run("evaluate", folder / "model", "--data", folder / "data")
    assert f"protocol: {expected.protocol}" in text
    assert f"{expected.metrics['NDCG@10']:.4f}" in text


def test_evaluate_by_segment(folder: Path, recommender: Recommender) -> None:
    expected = recommender.analyze(leave_last_out(random_walks()), k=5, popular=0.2)
    arguments = ("evaluate", folder / "model", "--data", folder / "data", "--segments", "-k", 5, "--popular", 0.2)
    printed = json.loads(run(*arguments, "--json"))
    assert printed == {"model": str(folder / "model"), **json.loads(json.dumps(expected.to_dict()))}
    text = run(*arguments)
    for segment in expected.segments:
        assert f"{segment.name} {segment.num_queries} {segment.metrics['HR@5']:.4f}" in " ".join(text.split())
    assert f"coverage@5 {expected.beyond['coverage@5']:.4f}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-k", 5], "--k needs --segments; add it."),
        (["--popular", 0.2], "--popular needs --segments; add it."),
        (["--segments", "-k", 99], "k is 99 but there are 40 items; ask for k <= 40."),
        (["--segments", "--popular", 3], "--popular is 3.0; give a share of the items above 0 and at most 1."),
    ],
)
def test_evaluate_wrongly(folder: Path, capsys: pytest.CaptureFixture[str], flags: list[object], message: str) -> None:
    assert run_main("evaluate", folder / "model", "--data", folder / "data", *flags) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_no_model(folder: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"config\.json does not exist; give a folder that"):
        run("recommend", folder / "data", "--history", "1")
    with pytest.raises(ModelFolderError, match=r"is not the folder of a model, but .*model is; give that one"):
        run("evaluate", folder, "--data", folder / "data")  # the folder of a run
    with pytest.raises(ModelFolderError, match=r"config\.json does not exist; give .*model, which holds a model"):
        run("recommend", folder, "--history", "1")


def test_rules(folder: Path, recommender: Recommender) -> None:
    first = recommender.recommend([7], 12)["item"].to_list()
    arguments = ("--users", "7", "--data", folder / "data", "-k", 5, "--json")
    for flags, options in (
        (("--exclude", f"{first[0]}, {first[2]}"), {"exclude": [first[0], first[2]]}),
        (("--max-per", "kind=1", "--pad"), {"max_per": {"kind": 1}, "pad": True}),
        (("--max-per", "kinds=1:|", "--pad"), {"max_per": {"kinds": MaxPer(1, separator="|")}, "pad": True}),
        (("--diversity", 0.5, "--pool", 12), {"diversity": 0.5, "pool": 12}),
    ):
        printed = json.loads(run("recommend", folder / "model", *arguments, *flags))
        found = pl.DataFrame(printed["recommendations"])["item"].to_list()
        assert found == recommender.recommend([7], 5, **options)["item"].to_list()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--max-per", "kind"), "--max-per is 'kind'; give COLUMN=NUMBER, such as genre=2 or genres=2:|"),
        (("--max-per", "kind=2:"), "--max-per is 'kind=2:'; give COLUMN=NUMBER"),
        (("--max-per", "kind=2", "--max-per", "kind=3"), "--max-per names 'kind' twice"),
        (
            ("--max-per", "genre=2"),
            "--max-per names 'genre', which is not a column of the items; choose from: item, title",
        ),
        (("--diversity", 0.5, "--pool", 3), "--pool is 3 but k is 5; ask for --pool >= 5"),
        (("--pool", 30), "--pool is 30 but there is no rule to apply; give --max-per or --diversity"),
        (("--max-per", "kind=1"), "raise --max-per, or pass --pad"),
        (("--diversity", 2), "--diversity"),
    ],
)
def test_wrong_rules(folder: Path, flags: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("recommend", folder / "model", "--users", "7", "--data", folder / "data", "-k", 5)
    assert run_main(*arguments, *flags) != 0
    assert message in " ".join(capsys.readouterr().err.split())
