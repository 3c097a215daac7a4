"""Distillation: the losses are those of naive loops, and a student follows a teacher that a cosine cannot."""

import copy
import math
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import Generator, Tensor

from railsearch import MixtureOfLogits, fit_similarity
from railsearch.errors import InvalidInputError
from railsearch.training.distillation import (
    ScoredLists,
    TeacherLoss,
    backward_distillation,
    kl_of_lists,
    margin_mse_of_lists,
)
from railsearch.training.teacher import TeacherScores
from tests.support.similarities import make_similarity

QUIET = {"show_progress": False, "patience": None}


def make_lists(num_items: int) -> ScoredLists:
    """Return three lists of 4, 2 and 3 items."""
    items = torch.randint(num_items, (3, 4), generator=Generator().manual_seed(0))
    is_given = torch.arange(4) < torch.tensor([[4], [2], [3]])
    return ScoredLists(items, torch.randn(3, 4, generator=Generator().manual_seed(1)), is_given)


def naive_kl(student: list[float], teacher: list[float]) -> float:
    p, q = ([math.exp(s) / sum(math.exp(other) for other in scores) for s in scores] for scores in (teacher, student))
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def naive_margin_mse(student: list[float], teacher: list[float]) -> float:
    errors = [
        ((student[i] - student[j]) - (teacher[i] - teacher[j])) ** 2 for i in range(len(student)) for j in range(i)
    ]
    return sum(errors) / len(errors)


@pytest.mark.parametrize(("ours", "naive"), [(kl_of_lists, naive_kl), (margin_mse_of_lists, naive_margin_mse)])
def test_losses_are_those_of_naive_loops(ours: object, naive: object) -> None:
    lists = make_lists(9)
    student = torch.randn(3, 4, dtype=torch.float64, generator=Generator().manual_seed(2))
    found = ours(student, lists.scores.double(), lists.is_given)  # type: ignore[operator]
    for row, count in enumerate((4, 2, 3)):
        expected = naive(student[row, :count].tolist(), lists.scores[row, :count].tolist())  # type: ignore[operator]
        assert found[row].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", ["mixture", "mixture-1x1", "mixture-uniform", "mixture-pair"])
@pytest.mark.parametrize("loss", list(TeacherLoss))
def test_the_gradient_in_blocks_is_that_of_the_plain_loss(kind: str, loss: TeacherLoss) -> None:
    """Also for lists of different lengths, and items that are in several lists."""
    similarity = make_similarity(kind)
    assert isinstance(similarity, torch.nn.Module)
    similarity.train(False)
    plain = copy.deepcopy(similarity)
    queries = torch.randn(3, *similarity.query_shape, generator=Generator().manual_seed(3))
    items = torch.randn(5, *similarity.item_shape, generator=Generator().manual_seed(4))
    lists = make_lists(5)
    found = backward_distillation(
        similarity, similarity.query_parts(queries), similarity.item_parts(items), lists,
        loss=loss, balance_weight=0.0, weight=0.3, pairs_per_block=4,
    )  # fmt: skip
    scores = plain.score_candidates(plain.query_parts(queries), plain.item_parts(items)[lists.items])
    expected = {TeacherLoss.KL: kl_of_lists, TeacherLoss.MARGIN_MSE: margin_mse_of_lists}[loss](
        scores, lists.scores, lists.is_given
    )
    (0.3 * expected.mean()).backward()
    assert found.softmax == pytest.approx(0.3 * expected.mean().item(), rel=1e-4)
    for (name, ours), theirs in zip(similarity.named_parameters(), plain.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6, msg=name)


def make_student(num_components: int) -> MixtureOfLogits:
    return MixtureOfLogits(
        query_dim=12, item_dim=12, num_query_components=num_components, num_item_components=num_components,
        component_dim=2, projection_dim=24, gate_dim=16, temperature=0.2, seed=1,
    )  # fmt: skip


def likes(queries: Tensor, items: Tensor) -> Tensor:
    """Score two items of each query above the others."""
    return 3.0 * (queries == items) + 2.0 * ((5 * queries + 3) % 12 == items)


def test_a_mixture_follows_a_mixture_that_a_cosine_cannot_follow() -> None:
    """The teacher has two reasons to like an item. Directions in a plane cannot say that of 12 items; mixtures can."""
    rows = torch.eye(12)
    divergence = {}
    for num_components in (1, 3):
        report = fit_similarity(
            make_student(num_components), rows, rows, teacher=likes, teacher_temperature=1.0, teacher_items=12,
            epochs=50, batch_size=12, learning_rate=3e-2, weight_decay=0.0, balance_weight=0.0, **QUIET,
        )  # fmt: skip
        divergence[num_components] = min(epoch.loss or math.inf for epoch in report.epochs)
    assert divergence[3] < 0.5 * divergence[1]


def triples(scores: list[float] | None = None, **columns: object) -> pl.DataFrame:
    table = {"query": [0, 0, 1, 1], "item": [0, 1, 2, 1], "score": [1.0, 0.0, 2.0, -1.0] if scores is None else scores}
    return pl.DataFrame({**table, **columns})


def fit(teacher: object, **options: object) -> MixtureOfLogits:
    student = make_student(2)
    pairs = options.pop("pairs", [[0, 0], [1, 2], [2, 3]])
    rows = torch.eye(12)[:4]
    fit_similarity(student, rows, rows, pairs, teacher=teacher, epochs=2, batch_size=2, **QUIET, **options)
    return student


def weights(student: MixtureOfLogits) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in student.parameters()])


def test_a_file_a_table_and_a_function_teach_the_same(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "query": [q for q in range(4) for _ in range(4)],
            "item": list(range(4)) * 4,
            "score": [q * 0.1 for q in range(16)],
        }
    ).with_columns(score=(pl.col("item") * 3.0 + pl.col("query")) % 5)
    table.write_parquet(tmp_path / "scores.parquet")
    table.sample(fraction=1, shuffle=True, seed=0).write_csv(tmp_path / "scores.csv")
    categories = table.with_columns(pl.col("query", "item").cast(pl.String).cast(pl.Categorical))
    teachers = [
        table, categories, tmp_path / "scores.parquet", str(tmp_path / "scores.csv"), lambda q, i: (3.0 * i + q) % 5,
    ]  # fmt: skip
    for mixed in (0.4, 1.0):
        found = [weights(fit(teacher, teacher_weight=mixed)) for teacher in teachers]
        assert all(torch.equal(found[0], other) for other in found[1:])
        assert not torch.equal(found[0], weights(fit(None)))


def test_a_resumed_run_equals_an_uninterrupted_one_and_knows_its_teacher(tmp_path: Path) -> None:
    rows = torch.eye(12)[:4]
    options = {"batch_size": 1, "teacher_weight": 0.5, "schedule": "constant", "warmup_share": 0.0, **QUIET}
    whole, resumed = make_student(2), make_student(2)
    pairs = [[0, 0], [1, 2]]
    options["negatives"] = "uniform"
    fit_similarity(whole, rows, rows, pairs, teacher=triples(), epochs=3, **options)
    for epochs in (1, 3):
        fit_similarity(
            resumed.train(True) if epochs == 1 else make_student(2), rows, rows, pairs, teacher=triples(),
            epochs=epochs, folder=tmp_path / "run", **options,
        )  # fmt: skip
    last = make_student(2)
    fit_similarity(last, rows, rows, pairs, teacher=triples(), epochs=3, folder=tmp_path / "run", **options)
    assert torch.equal(weights(whole), weights(last))
    with pytest.raises(InvalidInputError, match="teacher scores"):
        fit_similarity(
            make_student(2), rows, rows, pairs, teacher=triples([1.0, 0.0, 2.0, -1.5]), epochs=3,
            folder=tmp_path / "run", **options,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (triples([1.0, math.nan, 2.0, 3.0]), "1 scores that are not finite, such as nan in row 1"),
        (triples([1.0, None, 2.0, 3.0]), "1 scores that are missing or no numbers, such as None in row 1"),
        (triples([1.0, 1.0, 2.0, 2.0]), "constant scores teach no order"),
        (triples(query=[0, 1, 2, 3]), "one score for each of 4 queries; a query needs at least 2"),
        (triples(item=[0, 1, 4, 1]), "1 unknown ids in column 'item', such as '4' in row 2"),
        (triples(item=["0", "1", "02", "1"]), "1 unknown ids in column 'item', such as '02' in row 2"),
        (triples(item=[0, 0, 2, 1]), "1 query-item pairs two different scores, such as that of row 1"),
        (triples(item=[[0], [1], [2], [1]]), r"holds List\(Int64\) in column 'item'; give ids: text or numbers"),
        (triples().drop("score"), "has no column 'score'; its columns are: query, item"),
        (triples().clear(), "has no scores"),
        (lambda q, _i: q[:-1], r"returned scores of shape \(15,\) for 16 query-item pairs"),
        (lambda _q, _i: None, "the teacher returned None for 16 query-item pairs; return one number for each"),
        (lambda q, _i: ["a"] * len(q), "the teacher's result holds <U1 values"),
        (lambda q, _i: q * math.nan, "16 scores that are not finite"),
        (7, "teacher is a int; give a function"),
        ("missing.csv", "missing\\.csv does not exist"),
    ],
)  # fmt: skip
def test_wrong_teachers_are_refused_before_training(teacher: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        fit(teacher)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"teacher_weight is 1\.5; give a share"):
        fit(triples(), teacher_weight=1.5)
    with pytest.raises(InvalidInputError, match="teacher_loss is 'mse'; choose from: kl, margin_mse"):
        fit(triples(), teacher_loss="mse")
    with pytest.raises(InvalidInputError, match="pairs is None and teacher is None"):
        fit(None, pairs=None)


@pytest.mark.parametrize("large", [0.0, 2.0**40])
def test_lists_are_drawn_without_repeats_and_hold_the_teachers_scores(large: float) -> None:
    """They hold the differences, also of scores whose differences fp32 cannot hold."""
    scores = TeacherScores.from_triples(
        torch.tensor([5, 5, 5, 8, 8]),
        torch.tensor([1, 2, 3, 1, 4]),
        torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64) + large,
        source="t",
    )
    known = {(5, 1): 1.0, (5, 2): 2.0, (5, 3): 3.0, (8, 1): 4.0, (8, 4): 5.0}
    lists = scores.draw(torch.tensor([1, 0, 0]), 2, temperature=2.0, generator=Generator().manual_seed(0))
    for query, items, given in zip((8, 5, 5), lists.items.tolist(), lists.scores.tolist(), strict=True):
        assert len(set(items)) == 2
        assert 2 * (given[0] - given[1]) == known[query, items[0]] - known[query, items[1]]
    assert scores.best_pairs().tolist() == [[5, 3], [8, 4]]
    longer = scores.draw(torch.tensor([0, 1]), 9, temperature=1.0, generator=Generator().manual_seed(0))
    assert longer.is_given.tolist() == [[True] * 3, [True, True, False]]
