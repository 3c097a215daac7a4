"""Teachers of text retrievers and recommenders: functions and files by the callers' ids, in recipes and commands."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import torch

from railsearch import Recommender, TextRetriever
from railsearch.data import QuestionPassages, split_questions
from railsearch.errors import InvalidInputError
from railsearch.recipes import TextTrainingConfig, update_recipe
from railsearch.training import asking
from railsearch.training.task import Batch
from railsearch.training.tasks.students import TextStudent
from tests.support.tiny_text import PAIRS, make_base, make_data, make_recipe
from tests.support.training_worlds import random_walks, small_recipe

WORLD = random_walks(num_users=12, num_items=10, user_name=lambda user: f"u{user}", item_name=lambda item: 100 + item)
USERS = [f"u{user}" for user in range(12)]
QUIET = {"show_progress": False}


def opposite(users: npt.NDArray[np.object_], items: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Score high items for even users, and low items for odd ones."""
    signs = np.array([1.0 if int(user[1:]) % 2 == 0 else -1.0 for user in users])
    return signs * (items - 104.5)


def table_of_users() -> pl.DataFrame:
    users, items = np.repeat(np.array(USERS, dtype=object), 10), np.tile(np.arange(100, 110), 12)
    return pl.DataFrame({"user": list(users), "item": items, "score": opposite(users, items)})


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize(("encoder", "similarity"), [("sasrec", "mixture"), ("hstu", "mixture-user")])
def test_a_recommender_follows_its_teacher(encoder: str, similarity: str) -> None:
    """The loss of lists of all items falls; the labels of this world are random."""
    settings = {"epochs": 12, "teacher_weight": 1.0, "teacher_items": 10, "batch_size": 6, "learning_rate": 0.02}
    recipe = small_recipe(encoder, similarity, **settings, cosine_epochs=0)
    report = Recommender.fit(WORLD, recipe, teacher=opposite, **QUIET).report
    assert report.epochs[-1].loss < 0.6 * report.epochs[0].loss


def test_a_file_in_the_recipe_teaches_as_a_function_does(tmp_path: Path) -> None:
    """Also in the phase in which a mixture is trained as a cosine; an update does not need the file."""
    table_of_users().write_csv(tmp_path / "scores.csv")
    settings = {"epochs": 2, "teacher_items": 5, "teacher_weight": 0.3}
    asked = Recommender.fit(WORLD, small_recipe(**settings), teacher=opposite, **QUIET)
    recipe = small_recipe(**settings, teacher=str(tmp_path / "scores.csv"))
    read = Recommender.fit(WORLD, recipe, **QUIET)
    assert torch.equal(weights(asked.model), weights(read.model))
    assert not torch.equal(weights(read.model), weights(Recommender.fit(WORLD, small_recipe(epochs=2), **QUIET).model))
    assert update_recipe(recipe).training.teacher is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (table_of_users().with_columns(user=pl.lit("u99")), "unknown ids in column 'user', such as 'u99' in row 0"),
        (table_of_users().rename({"user": "person"}), "has no column 'user' or 'query'; its columns are: person"),
        (table_of_users().with_columns(score=pl.lit(math.inf)), "120 scores that are not finite"),
    ],
)
def test_wrong_teachers_of_a_recommender(table: pl.DataFrame, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Recommender.fit(WORLD, small_recipe(epochs=1), teacher=table, **QUIET)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return make_base(tmp_path_factory.mktemp("base") / "bert")


def likes_next(questions: npt.NDArray[np.object_], passages: npt.NDArray[np.object_]) -> list[float]:
    """Score the passage of the next question highest: the opposite of what the labels say."""
    texts, answers = [question for question, _ in PAIRS], [passage for _, passage in PAIRS]
    rows = zip(questions, passages, strict=True)
    return [5.0 * ((texts.index(question) + 1) % 20 == answers.index(passage)) for question, passage in rows]


def test_a_text_retriever_follows_its_teacher_from_a_function_and_a_file(base: Path, tmp_path: Path) -> None:
    training = {"batch_size": 10, "learning_rate": 0.01, "new_learning_rate": 0.01, "teacher_weight": 1.0}
    recipe = make_recipe(base, TextTrainingConfig(epochs=8, teacher_items=20, **training))
    report = TextRetriever.fit(PAIRS, recipe, teacher=likes_next, **QUIET).report
    assert report.epochs[-1].loss < 0.9 * report.epochs[1].loss
    passages = [passage for _, passage in PAIRS]
    short = TextTrainingConfig(epochs=1, teacher_items=20, **training)
    table = pl.DataFrame(
        {
            "question": [question for question, _ in PAIRS for _ in PAIRS],
            "passage": passages * 20,
        }
    )
    scores = likes_next(table["question"].to_numpy(), table["passage"].to_numpy())
    table.with_columns(score=pl.Series(scores)).write_parquet(tmp_path / "scores.parquet")
    named = make_recipe(base, short.model_copy(update={"teacher": str(tmp_path / "scores.parquet")}))
    models = [
        TextRetriever.fit(PAIRS, make_recipe(base, short), teacher=likes_next, **QUIET),
        TextRetriever.fit(PAIRS, named, **QUIET),
    ]
    assert torch.equal(*(weights(each.model) for each in models))


@pytest.mark.parametrize("pooling", ["tokens", "parameterised", "mean"])
def test_small_passes_have_the_gradient_of_one(base: Path, pooling: str) -> None:
    counts = {"num_query_components": 1, "num_item_components": 1} if pooling == "mean" else {}
    gradients = []
    for size in (None, 3):
        model = TextRetriever(make_recipe(base, pooling=pooling, **counts)).model
        student = TextStudent(model, make_data(), TextTrainingConfig(micro_batch_size=size))
        rows = torch.arange(7)
        batch = Batch(rows, rows, torch.Generator().manual_seed(0))
        embedded = student.embed(rows, rows + 5, batch)
        sides = embedded.queries.flatten(1), embedded.items.flatten(1)  # (7, Pq d), (7, Px d)
        (sides[0] @ sides[1][:, : sides[0].shape[1]].T).square().mean().backward()
        embedded.finish()
        gradients.append(torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None]))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_passages_that_are_cut_into_windows_are_taught_window_by_window(base: Path) -> None:
    counts = {"num_query_components": 1, "num_item_components": 4}
    model = TextRetriever(make_recipe(base, pooling="windows", max_passage_length=8, **counts)).model
    data = QuestionPassages.from_pairs([(question, f"{text} {text} {text}") for question, text in PAIRS])
    rows = torch.arange(8)
    batch = Batch(rows, rows, torch.Generator().manual_seed(0))
    embedded = TextStudent(model.train(False), data, TextTrainingConfig()).embed(rows, rows + 5, batch)
    expected = model.encode_passages(data.passages[5:13])  # (8, 4, d)
    torch.testing.assert_close(embedded.items.detach().view_as(expected), expected, rtol=1e-4, atol=1e-5)


def test_unknown_questions_are_refused_with_both_names_of_a_known_one(base: Path) -> None:
    table = pl.DataFrame({"question": ["nobody?", PAIRS[0][0]], "passage": [PAIRS[0][1], PAIRS[1][1]], "score": [1, 2]})
    message = f"unknown ids in column 'question', such as 'nobody\\?' in row 0; .* such as '0' or '{PAIRS[0][0]}'"
    with pytest.raises(InvalidInputError, match=message):
        TextRetriever.fit(PAIRS, make_recipe(base, TextTrainingConfig(epochs=1)), teacher=table, **QUIET)


def test_a_slow_teacher_is_asked_for_few_pairs_at_a_time(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def slow(questions: np.ndarray, passages: np.ndarray) -> list[float]:
        asked.append(len(questions))
        return likes_next(questions, passages)

    monkeypatch.setattr(asking, "PAIRS_PER_CALL", 300)
    TextRetriever.fit(PAIRS, make_recipe(base, TextTrainingConfig(epochs=1, teacher_items=20)), teacher=slow, **QUIET)
    assert asked == [300, 100]


def test_scores_of_held_out_questions_are_not_used(base: Path, tmp_path: Path) -> None:
    questions = [question for question, _ in PAIRS for _ in PAIRS]
    table = pl.DataFrame({"question": questions, "passage": [passage for _, passage in PAIRS] * 20})
    scores = likes_next(table["question"].to_numpy(), table["passage"].to_numpy())
    table = table.with_columns(score=pl.Series(scores))
    data = split_questions(make_data(), validation_share=0.2, test_share=0.2, seed=0)
    recipe = make_recipe(base, TextTrainingConfig(epochs=1, batch_size=10, teacher_items=20))
    held_out = {*data.validation.texts, *data.test.texts}
    assert len(held_out) == 8
    is_held_out = table["question"].is_in(list(held_out))
    models = [
        TextRetriever.fit(data, recipe, teacher=own, **QUIET).model for own in (table, table.filter(~is_held_out))
    ]
    assert torch.equal(*(weights(model) for model in models))
    with pytest.raises(InvalidInputError, match="scores only held-out queries, 160 rows"):
        TextRetriever.fit(data, recipe, teacher=table.filter(is_held_out), **QUIET)
    number = (~is_held_out).arg_true()[-1]
    spoiled = table.with_columns(score=pl.when(pl.int_range(pl.len()) == number).then(math.nan).otherwise("score"))
    with pytest.raises(InvalidInputError, match=f"not finite, such as nan in row {number};"):
        TextRetriever.fit(data, recipe, teacher=spoiled, **QUIET)
