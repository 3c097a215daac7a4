"""Ranked lists of models: TREC runs whose ranks are those of the evaluation, and BEIR folders from end to end."""

import json
from pathlib import Path

import pytest
import torch

from railsearch import Recommender, TextRetriever
from railsearch.data import Interactions, leave_last_out, read_beir
from railsearch.errors import InvalidInputError
from railsearch.evaluation import Run
from railsearch.recipes import CosineConfig
from tests.support.beir_folders import make_beir
from tests.support.commands import run, run_main
from tests.support.tiny_text import make_base, make_retriever
from tests.support.training_worlds import random_walks, small_recipe


@pytest.fixture(scope="module")
def world() -> Interactions:
    return random_walks(num_users=40, num_items=25, lengths=(5, 9))


@pytest.fixture(scope="module")
def recommender(world: Interactions) -> Recommender:
    return Recommender.fit(world, small_recipe(epochs=1))


def ranks_in(found: Run) -> list[int | None]:
    """Return the place of each query's best right item in its list, counted from 1."""
    right: dict[int, set[int]] = {}
    for query, item, _ in found.right.tolist():
        right.setdefault(query, set()).add(item)
    return [
        next((place for place, item in enumerate(rows, start=1) if item in right[query]), None)
        for query, rows in enumerate(found.rows.tolist())
    ]


def test_lists_of_a_recommender_have_the_ranks_of_its_evaluation(recommender: Recommender, world: Interactions) -> None:
    split = leave_last_out(world)
    evaluation = recommender.evaluate(split, depth=100)
    found = evaluation.run
    assert found is not None
    assert found.depth == 25  # no more than all items
    assert ranks_in(found) == evaluation.ranks.tolist()  # also of test items that are in the history
    assert found.measure(["RR@25"])["RR@25"] == pytest.approx(evaluation.metrics["MRR"])
    assert found.query_ids == tuple(map(str, world.user_ids))
    for query, rows in enumerate(found.rows.tolist()):
        start, end = int(world.offsets[query]), int(split.test.history_ends[query])
        history = set(world.items[start:end].tolist()) - {int(split.test.items[query])}
        assert not history & set(rows)
    assert bool((found.scores[:, :-1] >= found.scores[:, 1:]).all())
    assert recommender.evaluate(split).run is None
    with pytest.raises(InvalidInputError, match="depth is -1; ask for depth >= 0"):
        recommender.evaluate(split, depth=-1)


def test_the_command_writes_a_run(recommender: Recommender, world: Interactions, tmp_path: Path) -> None:
    from railsearch.data import write_prepared

    write_prepared(world, tmp_path / "data", name="walks")
    recommender.save(tmp_path / "model")
    files = ("--trec", tmp_path / "run.txt", "--qrels", tmp_path / "qrels.txt", "--depth", 5)
    printed = run("evaluate", tmp_path / "model", "--data", tmp_path / "data", *files)
    assert "written:" in printed
    lines = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert len(lines) == 5 * len(world.user_ids)
    assert {len(line) for line in lines} == {6}
    assert len((tmp_path / "qrels.txt").read_text().splitlines()) == len(world.user_ids)
    assert run_main("evaluate", tmp_path / "model", "--data", tmp_path / "data", *files) != 0
    with pytest.raises(InvalidInputError, match="--segments writes no ranked lists"):
        run("evaluate", tmp_path / "model", "--data", tmp_path / "data", "--segments", *files)
    with pytest.raises(InvalidInputError, match="both name"):
        run(
            "evaluate",
            tmp_path / "model",
            "--data",
            tmp_path,
            "--trec",
            "run.txt",
            "--qrels",
            "../" + Path.cwd().name + "/run.txt",
        )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert")


def test_lists_of_a_text_retriever_count_every_right_passage(base: Path, tmp_path: Path) -> None:
    options = {"num_query_components": 1, "num_item_components": 1}
    retriever = make_retriever(base, **options, similarity=CosineConfig())
    folder = make_beir(tmp_path / "beir")
    evaluation = retriever.evaluate(folder, depth=1000)  # whatever the layout of the recipe
    found, data = evaluation.run, read_beir(folder)
    assert found is not None
    assert data.test is not None
    assert found.depth == 20
    assert ranks_in(found) == evaluation.ranks.tolist()
    assert found.right[:, 2].tolist() == [1, 2] * 5  # passages in their order
    expected = retriever.model.similarity.score(
        retriever.model.query_parts(data.test.texts), retriever.model.item_parts(data.passages)
    )
    torch.testing.assert_close(found.scores, expected.sort(descending=True).values, rtol=1e-4, atol=1e-4)
    measures = found.measure()
    assert list(measures) == ["nDCG@10", "R@100", "RR@10", "AP@100"]
    assert measures["R@100"] == 1.0


def test_a_beir_folder_from_training_to_a_run(base: Path, tmp_path: Path) -> None:
    folder = make_beir(tmp_path / "beir")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"""
[encoder]
kind = "text"
base = "{base}"
max_query_length = 12
max_passage_length = 12
[training]
epochs = 1
batch_size = 6
""")
    trained = json.loads(run("train", recipe, "--data", folder, "--out", tmp_path / "run", "--json"))
    assert trained["counts"]["questions"] == 12  # those of qrels/train.tsv
    model = tmp_path / "run" / "model"
    corpus = ("--passages", folder / "corpus.jsonl")
    assert json.loads(run("index", "build", tmp_path / "index", "--model", model, *corpus, "--json"))["items"] == 20
    measured = json.loads(run("evaluate", model, "--data", folder, "--trec", tmp_path / "run.txt", "--json"))
    assert measured["num_queries"] == 5
    assert set(measured["measures"]) == {"nDCG@10", "R@100", "RR@10", "AP@100"}
    assert "nDCG@10" in run("evaluate", model, "--data", folder)
    lines = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert [line[0] for line in lines[::20]] == [f"q{row}" for row in range(15, 20)]
    retriever = TextRetriever.load(model)
    retriever.open_index(tmp_path / "index")
    best = retriever.search(["who w15 w25"], k=3).to_frame()["id"].to_list()
    assert best == [line[2] for line in lines[:3]]  # the index finds what the evaluation ranks


def test_ids_that_no_run_can_hold_are_refused_before_the_ranking(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_beir(tmp_path / "beir")
    corpus = folder / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace('"d1"', '"d 1"'))
    for labels in (folder / "qrels").iterdir():
        labels.write_text(labels.read_text().replace("\td1\t", "\td 1\t"))
    model = tmp_path / "model"
    make_retriever(base, num_query_components=1, num_item_components=1).save(model)
    monkeypatch.setattr("railsearch.evaluation.questions.rank_questions", None)
    assert run_main("evaluate", model, "--data", folder, "--trec", tmp_path / "run.txt") != 0
    assert "the item id 'd 1' is empty or has white space" in capsys.readouterr().err
    assert not (tmp_path / "run.txt").exists()
