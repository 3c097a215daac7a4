"""Training a text model: the loss is the plain one, whatever the micro-batches and processes, and pairs are learned."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch import TextRetriever
from railsearch.data import QuestionPassages, Questions
from railsearch.encoders import Side
from railsearch.errors import InvalidInputError
from railsearch.kernels import compute_item_parts
from railsearch.models import TextModel, rank_questions
from railsearch.recipes import CosineConfig, TextTrainingConfig
from railsearch.similarity import MixtureOfLogits, load_balance_loss
from railsearch.training.cached import CachedEncoding
from railsearch.training.losses import StepLosses
from railsearch.training.processes import Processes
from railsearch.training.task import Batch
from railsearch.training.tasks.texts import TextTask, draw_hard_negatives, validation_rows
from tests.support.tiny_text import PAIRS, make_base, make_data, make_recipe, make_retriever
from tests.support.two_text_processes import trained_weights

pytest.importorskip("transformers")

BATCH = torch.tensor([3, 0, 7, 12, 5, 19])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert")


def gradients(model: TextModel) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def plain_gradients(
    model: TextModel, data: QuestionPassages, batch: Tensor, brought: list[int], balance_weight: float
) -> dict[str, Tensor]:
    """The loss as the paper writes it, pair by pair, with nothing but autograd; some passages are brought along."""
    pairs = data.train.pairs[batch].tolist()
    right = {tuple(pair) for pair in data.train.pairs.tolist()}
    passages = sorted({*brought, *(passage for _, passage in pairs)})
    encoder, similarity = model.encoder, model.similarity
    queries = encoder(encoder.tokenize([data.train.texts[question] for question, _ in pairs], Side.QUERY), Side.QUERY)
    items = encoder(encoder.tokenize([data.passages[row] for row in passages], Side.PASSAGE), Side.PASSAGE)
    found = similarity.compare(similarity.query_parts(queries), similarity.item_parts(items))
    losses, weights = [], []
    for row, (question, passage) in enumerate(pairs):
        place = passages.index(passage)
        others = [other for other, one in enumerate(passages) if (question, one) not in right]
        logits = torch.cat([found.scores[row, place, None], found.scores[row, others]])
        losses.append(F.cross_entropy(logits[None], torch.tensor([0])))
        weights.append(found.gate_weights[row, place])
    loss = torch.stack(losses).mean() + balance_weight * load_balance_loss(torch.stack(weights)[:, None])
    model.zero_grad()
    loss.backward()
    return gradients(model)


@pytest.mark.parametrize("micro_batch_size", [None, 1, 4])
@pytest.mark.parametrize("pooling", ["tokens", "parameterised"])
@pytest.mark.parametrize("num_hard_negatives", [0, 1])
def test_the_gradient_is_the_plain_one(
    base: Path, num_hard_negatives: int, pooling: str, micro_batch_size: int | None
) -> None:
    # Question 3 has two right passages, one of which is question 0's: neither may be a negative of the other's.
    data = QuestionPassages.from_pairs([*PAIRS, (PAIRS[3][0], PAIRS[0][1])])
    named = torch.tensor([[4, 17], [7, 16]])  # question 4 is in the batch, 7 is not
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, hard_negatives=named))
    retriever = make_retriever(base, pooling=pooling, similarity={"kind": "mixture_of_logits", "gate_dropout": 0.0})
    model = retriever.model.double().train()
    questions = set(data.train.pairs[BATCH, 0].tolist())
    brought = [passage for question, passage in named.tolist() if question in questions and num_hard_negatives]
    assert bool(brought) == bool(num_hard_negatives)
    expected = plain_gradients(model, data, BATCH, brought, balance_weight=0.1)
    model.zero_grad()
    config = TextTrainingConfig(
        balance_weight=0.1, micro_batch_size=micro_batch_size, num_hard_negatives=num_hard_negatives
    )
    TextTask(model, data, config).step(Batch(BATCH, BATCH, Generator().manual_seed(0)))
    found = gradients(model)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], msg=lambda text, name=name: f"{name}: {text}")


def test_a_pass_that_runs_again_drops_the_same() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)).double()
    inputs = torch.randn(10, 4, generator=Generator().manual_seed(0), dtype=torch.float64)
    runs: list[Tensor] = []

    def encode(rows: list[int]) -> Tensor:
        runs.append(network(inputs[rows]))
        return runs[-1]

    encoding = CachedEncoding(encode, lengths=range(10), rows_per_pass=4, generator=Generator().manual_seed(1))
    assert not encoding.embeddings.requires_grad
    encoding.backward(torch.ones(10, 2, dtype=torch.float64))
    assert [len(run) for run in runs] == [4, 4, 2, 4, 4, 2]
    for first, again in zip(runs[:3], runs[3:], strict=True):
        assert torch.equal(first, again)
    assert not torch.equal(runs[0], runs[1])


@pytest.mark.parametrize("rows_per_pass", [None, 1, 4, 10])
def test_passes_have_rows_of_similar_length_and_the_gradient_of_one_pass(rows_per_pass: int | None) -> None:
    weight = torch.randn(3, 2, generator=Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    inputs, direction = torch.randn(10, 3, dtype=torch.float64), torch.randn(10, 2, dtype=torch.float64)
    lengths, seen = [5, 900, 1, 1700, 2000, 900, 3, 1500, 8, 800], []

    def encode(rows: list[int]) -> Tensor:
        seen.append(rows)
        return inputs[rows] @ weight

    encoding = CachedEncoding(encode, lengths=lengths, rows_per_pass=rows_per_pass, generator=Generator())
    torch.testing.assert_close(encoding.embeddings, inputs @ weight.detach())
    passes = list(seen)
    assert [lengths[row] for rows in passes for row in rows] == sorted(lengths, reverse=True)
    if rows_per_pass in {None, 10}:
        assert 1 < len(passes) < 10
        assert all(len(rows) * max(lengths[row] for row in rows) <= 4096 for rows in passes)
    encoding.backward(direction)
    assert seen == (passes if rows_per_pass in {None, 10} else passes * 2)
    torch.testing.assert_close(weight.grad, inputs.T @ direction)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"pooling": "parameterised"}, marks=pytest.mark.slow),
        pytest.param({"shares_backbone": False}, marks=pytest.mark.slow),
        pytest.param(
            {"pooling": "mean", "num_query_components": 1, "num_item_components": 1, "similarity": CosineConfig()},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["tokens", "parameterised", "two backbones", "cosine"],
)
def test_twenty_pairs_are_memorised(base: Path, options: dict[str, object]) -> None:
    data = make_data()
    config = TextTrainingConfig(epochs=80, batch_size=20, learning_rate=0.01, new_learning_rate=0.01, seed=1)
    before = rank_all(make_retriever(base, **options).model, data)
    retriever = TextRetriever.fit(data, make_recipe(base, config, **options))
    assert (before > 1).any()
    assert (rank_all(retriever.model, data) == 1).all()
    report = retriever.report
    assert report.epochs[-1].loss < 0.5 * report.epochs[1].loss


def rank_all(model: TextModel, data: QuestionPassages) -> Tensor:
    return rank_questions(model, data.train, model.item_parts(data.passages))


def test_ranks_are_those_of_a_sorted_list(base: Path) -> None:
    data = QuestionPassages.from_pairs([*PAIRS, (PAIRS[3][0], PAIRS[0][1]), (PAIRS[3][0], PAIRS[9][1])])
    model = make_retriever(base).model
    rows = torch.tensor(sorted({0, 3, 9, 11, 17}))
    asked = data.train.select([3])
    scores = model.similarity.score(
        model.similarity.query_parts(model.encode_queries(asked.texts)),
        compute_item_parts(model.similarity, model.encode_passages([data.passages[row] for row in rows.tolist()])),
    )[0].tolist()
    order = sorted(range(len(rows)), key=lambda place: -scores[place])
    expected = min(order.index(rows.tolist().index(row)) + 1 for row in (0, 3, 9))
    item_parts = model.item_parts([data.passages[row] for row in rows.tolist()])
    assert rank_questions(model, asked, item_parts, rows=rows).tolist() == [expected]


def test_validation_ranks_among_right_passages_and_some_others() -> None:
    data = make_data()
    held_out = dataclasses.replace(data, validation=data.train.select([4, 8]))
    rows = validation_rows(held_out, TextTrainingConfig(validation_passages=5))
    assert {4, 8} <= set(rows.tolist())
    assert 5 <= len(rows) <= 7
    assert torch.equal(rows, rows.sort().values)
    assert torch.equal(rows, validation_rows(held_out, TextTrainingConfig(validation_passages=5)))
    assert len(validation_rows(held_out, TextTrainingConfig())) == len(data.passages)


def test_hard_negatives_are_those_of_the_questions_asked() -> None:
    named = torch.tensor([[0, 5], [0, 6], [0, 7], [2, 8]])
    questions = Questions(("a", "b", "c"), ("a", "b", "c"), torch.tensor([[0, 0], [1, 1], [2, 2]]), named)
    draws = {
        tuple(
            sorted(draw_hard_negatives(questions, torch.tensor([0, 1, 0]), 2, Generator().manual_seed(seed)).tolist())
        )
        for seed in range(20)
    }
    assert draws == {(5, 6), (5, 7), (6, 7)}
    assert draw_hard_negatives(questions, torch.tensor([1]), 2, Generator()).tolist() == []
    assert draw_hard_negatives(questions, torch.tensor([2]), 2, Generator()).tolist() == [8]


class CutError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_run_that_goes_on_is_one_that_was_never_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    base = make_base(tmp_path / "base", kind=kind, dropout=0.1)
    data = make_data()
    config = TextTrainingConfig(epochs=2, batch_size=6, checkpoint_minutes=0.0, micro_batch_size=2)
    recipe = make_recipe(base, config)
    whole = TextRetriever.fit(data, recipe)
    step = TextTask.step
    num_steps = 0

    def step_or_die(task: TextTask, batch: Batch) -> StepLosses:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 7:  # of 8, in the middle of the second epoch
            raise CutError
        return step(task, batch)

    monkeypatch.setattr(TextTask, "step", step_or_die)
    with pytest.raises(CutError):
        TextRetriever.fit(data, recipe, folder=tmp_path / "run")
    again = TextRetriever.fit(data, recipe, folder=tmp_path / "run")
    assert num_steps == 9
    assert again.report.num_epochs == 2
    assert again.fingerprint == whole.fingerprint


def test_a_run_folder_refuses_other_data(base: Path, tmp_path: Path) -> None:
    data = dataclasses.replace(make_data(), validation=make_data().train.select([1, 2]))
    recipe = make_recipe(base, TextTrainingConfig(epochs=1, batch_size=10))
    TextRetriever.fit(data, recipe, folder=tmp_path / "run")
    hard = dataclasses.replace(data.train, hard_negatives=torch.tensor([[0, 4]]))
    others = {
        "hard negatives": dataclasses.replace(data, train=hard),
        "validation": dataclasses.replace(data, validation=make_data().train.select([1, 3])),
        "spelling": QuestionPassages.from_pairs([*PAIRS[:-1], (PAIRS[-1][0] + " end", PAIRS[-1][1])]),
    }
    for other in others.values():
        with pytest.raises(InvalidInputError, match="holds a run with data"):
            TextRetriever.fit(other, recipe, folder=tmp_path / "run")
    unvalidated = make_data()  # the last epoch is kept
    trained = TextRetriever.fit(unvalidated, recipe)
    before = trained.fingerprint
    further = TextRetriever.fit(unvalidated, recipe, start=trained)
    assert trained.fingerprint == before != further.fingerprint
    with pytest.raises(InvalidInputError, match="holds a run with first weights"):
        TextRetriever.fit(data, recipe, start=trained, folder=tmp_path / "run")


def test_a_mixture_starts_as_the_cosine_of_its_encoder(base: Path, tmp_path: Path) -> None:
    single = {"num_query_components": 1, "num_item_components": 1}
    cosine = TextRetriever.fit(
        make_data(), make_recipe(base, TextTrainingConfig(epochs=1), similarity={"kind": "cosine"}, **single)
    )
    recipe = make_recipe(base, TextTrainingConfig(epochs=0), **single)
    start = TextRetriever.fit(make_data(), recipe, start=cosine, save_to=tmp_path / "model")
    assert start.recipe.num_components == (4, 4)
    assert repr(TextRetriever.load(tmp_path / "model")).endswith("4 x 4 components)")
    texts = [question for question, _ in PAIRS[:3]]
    plain = make_retriever(base, similarity={"kind": "cosine"}, **single)
    for before, after in ((plain, make_retriever(base, **single)), (cosine, start)):
        scores = [
            each.model.similarity.score(each.model.query_parts(texts), each.model.item_parts(texts))
            for each in (before, after)
        ]
        assert torch.allclose(*scores, atol=1e-4)
    assert start.report.best_epoch == 0
    several = make_recipe(base, TextTrainingConfig(epochs=0))
    with pytest.raises(InvalidInputError, match="num_query_components is 2 in the recipe but 1 in the start"):
        TextRetriever.fit(make_data(), several, start=cosine)


def test_new_weights_learn_at_their_own_rate(base: Path) -> None:
    before = {name: value.clone() for name, value in make_retriever(base).model.state_dict().items()}
    config = TextTrainingConfig(
        epochs=3, batch_size=20, learning_rate=1e-6, new_learning_rate=1e-2, warmup_share=0.0, weight_decay=0.0
    )
    retriever = TextRetriever.fit(make_data(), make_recipe(base, config))
    moved = {name: (value - before[name]).abs().max() for name, value in retriever.model.state_dict().items()}
    new = retriever.model.new_names()
    assert "encoder.aggregation_embeddings" in new
    assert any(name.startswith("similarity.gate") for name in new)
    assert min(moved[name] for name in new) > 1e-3
    assert max(value for name, value in moved.items() if name not in new) < 1e-5


@pytest.mark.slow
def test_two_processes_have_the_gradient_of_one(base: Path, tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "support" / "two_text_processes.py"
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", program, base, tmp_path / "weights"]
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], check=False, capture_output=True, text=True, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"weights-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    for name, values in trained_weights(base, Processes()).items():
        torch.testing.assert_close(torch.tensor(first[name]), torch.tensor(values), msg=name)


def test_nothing_to_learn_is_refused(base: Path) -> None:
    model = make_retriever(base).model
    one = QuestionPassages.from_pairs([("who w1", "it is w2"), ("who w3", "it is w2")])
    with pytest.raises(InvalidInputError, match="same passage"):
        TextTask(model, one, TextTrainingConfig())
    with pytest.raises(InvalidInputError, match="HR@100"):
        TextTask(model, make_data(), TextTrainingConfig(metric="HR@7"))
    with pytest.raises(InvalidInputError, match="num_hard_negatives is 2"):
        TextTask(model, make_data(), TextTrainingConfig(num_hard_negatives=2))
    mixture = MixtureOfLogits(num_query_components=2, num_item_components=2, component_dim=16, gate_inputs=["pair"],
                              query_projection="ready", item_projection="ready")  # fmt: skip
    with pytest.raises(InvalidInputError, match="3 passage components of 16 values but the similarity"):
        TextModel(encoder=model.encoder, similarity=mixture)
