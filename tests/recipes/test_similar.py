"""Batches of similar questions: each pair comes once, a group has each question once, and training learns from them."""

import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from railsearch import TextRetriever
from railsearch.encoders import Side, TextEncoder
from railsearch.errors import InvalidInputError
from railsearch.recipes import TextTrainingConfig
from railsearch.training import similar
from railsearch.training.processes import Processes
from railsearch.training.similar import SimilarBatches, batch_similar, find_similar
from railsearch.training.task import Batch
from railsearch.training.tasks import texts
from railsearch.training.tasks.texts import TextTask
from tests.support.tiny_text import make_base, make_data, make_recipe, make_retriever

pytest.importorskip("transformers")

ONE = {"num_query_components": 1, "num_item_components": 1, "pooling": "mean"}
COSINE = {"kind": "cosine"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def encoder(base: Path) -> TextEncoder:
    return make_retriever(base, **ONE).model.encoder


ALONE = {"generator": Generator().manual_seed(0), "processes": Processes(), "show_progress": False}


def order_of(batches: SimilarBatches, seed: int) -> Tensor:
    return batches.order(Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(20))
def test_groups_divide_the_pairs_and_take_what_is_free(seed: int) -> None:
    generator = Generator().manual_seed(seed)
    num_questions, size = int(torch.randint(1, 12, (), generator=generator)), 1 + seed % 4
    owners = torch.randint(num_questions, (60,), generator=generator)
    neighbours = torch.stack([torch.randperm(num_questions, generator=generator) for _ in range(num_questions)])[:, :5]
    batches = SimilarBatches(owners, neighbours, size=size)
    groups = batches.groups(Generator().manual_seed(seed))
    assert sorted(pair for group in groups for pair in group) == list(range(60))
    later = {pair for group in groups for pair in group}
    for group in groups:
        questions = [int(owners[pair]) for pair in group]
        near = [row for row in neighbours[questions[0]].tolist() if row != questions[0]]
        later -= set(group)
        assert questions[1:] == [row for row in near if row in questions]  # distinct, best first
        left = {int(owners[pair]) for pair in later} & set(near) - set(questions)
        assert len(group) == size or not left
    order = order_of(batches, seed)
    assert order.sort().values.tolist() == list(range(60))
    assert torch.equal(order, order_of(batches, seed))


def test_groups_are_whole_while_neighbours_are_free_and_differ_between_epochs() -> None:
    subjects = torch.arange(64) // 8  # eight subjects of eight questions
    neighbours = torch.stack([(subjects == subject).nonzero()[:, 0] for subject in subjects])  # (64, 8)
    batches = SimilarBatches(torch.arange(64), neighbours, size=4)
    orders = [order_of(batches, seed) for seed in range(4)]
    for order in orders:
        assert all(len(set(group.tolist())) == 1 for group in subjects[order].split(4))
    groups = [{frozenset(group.tolist()) for group in order.split(4)} for order in orders]
    assert groups[0] != groups[1]
    assert len({tuple(subjects[order[::4]].tolist()) for order in orders}) == 4  # groups are in random order


@pytest.mark.parametrize("seed", range(10))
def test_a_batch_has_whole_groups(seed: int) -> None:
    subjects = torch.arange(70) // 7  # ten subjects of seven questions: half of each is a group of four
    neighbours = torch.stack([(subjects == subject).nonzero()[:, 0] for subject in subjects])
    batches = SimilarBatches(torch.arange(70), neighbours, size=4)
    groups = batches.groups(Generator().manual_seed(seed))
    whole = {frozenset(group) for group in groups if len(group) == 4}
    fours = {frozenset(four.tolist()) for four in order_of(batches, seed).split(4)}
    assert len(whole) == 10
    assert whole <= fours


@pytest.mark.parametrize("most", [2**16, 13, 5])
def test_similar_questions_have_the_largest_cosines_of_their_block(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "MOST_COMPARED", most)
    monkeypatch.setattr(similar, "QUERIES_PER_SEARCH", 4)
    embeddings = torch.randn(29, 6, generator=Generator().manual_seed(0))
    found = find_similar(
        embeddings, 4, generator=Generator().manual_seed(1), processes=Processes(), show_progress=False
    )  # (29, 4)
    unit = torch.nn.functional.normalize(embeddings.double(), dim=-1)
    cosines = unit @ unit.T
    num_blocks = math.ceil(29 / most)
    blocks = torch.randperm(29, generator=Generator().manual_seed(1)).tensor_split(num_blocks)
    for block in blocks:
        for row in block.tolist():
            best = block[cosines[row, block].argsort(descending=True)][:4]
            assert found[row].tolist() == best.tolist()


def test_questions_are_encoded_by_their_mean_component(base: Path) -> None:
    encoder = make_retriever(base).model.encoder  # two components of a question
    texts = [f"who w{row} w{row % 3}" for row in range(12)]
    components = encoder.encode(texts, Side.QUERY)
    batches = batch_similar(encoder, texts, torch.arange(12), size=1, **ALONE)
    means = torch.nn.functional.normalize(components.mean(dim=1), dim=-1)
    expected = find_similar(means, 8, generator=Generator().manual_seed(0), processes=Processes(), show_progress=False)
    assert torch.equal(batches._neighbours, expected.int())


def test_equal_texts_are_one_question(encoder: TextEncoder) -> None:
    """Their passages answer the same, so that one is no negative of the other."""
    texts, owners = ["w1 w2", "w9 w8", "w1 w2", "w20 w21"], torch.tensor([0, 1, 2, 3, 3])
    batches = batch_similar(encoder, texts, owners, size=3, **ALONE)
    for seed in range(20):
        for group in batches.groups(Generator().manual_seed(seed)):
            asked = [texts[owners[pair]] for pair in group]
            assert len(set(asked)) == len(asked)


def test_a_batch_of_training_has_similar_questions(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    seen: list[Tensor] = []
    step = TextTask.step

    def noted(task: TextTask, batch: Batch) -> object:
        seen.append(batch.examples)
        return step(task, batch)

    monkeypatch.setattr(TextTask, "step", noted)
    training = TextTrainingConfig(epochs=2, batch_size=4, similar_questions=4)
    retriever = TextRetriever(make_recipe(base, training, similarity=COSINE, **ONE))
    embeddings = torch.nn.functional.normalize(
        retriever.model.encoder.encode(data.train.texts, Side.QUERY)[:, 0], dim=-1
    )
    TextRetriever.fit(data, retriever.recipe, show_progress=False)
    cosines = embeddings @ embeddings.T
    within = torch.stack([cosines[rows][:, rows].mean() for rows in seen]).mean()
    assert len(seen) == 10
    assert torch.cat(seen[:5]).sort().values.tolist() == list(range(20))
    assert not torch.equal(torch.cat(seen[:5]), torch.cat(seen[5:]))
    seen.clear()
    TextRetriever.fit(
        data,
        make_recipe(base, training.model_copy(update={"similar_questions": 1}), similarity=COSINE, **ONE),
        show_progress=False,
    )
    assert within > torch.stack([cosines[rows][:, rows].mean() for rows in seen]).mean()


def test_a_run_that_resumes_has_the_same_batches(base: Path, tmp_path: Path) -> None:
    def fit(folder: Path | None, epochs: int) -> TextRetriever:
        training = TextTrainingConfig(
            epochs=epochs, batch_size=4, similar_questions=2, learning_rate=0.01, schedule="constant", warmup_share=0
        )
        recipe = make_recipe(base, training, similarity=COSINE, **ONE)
        return TextRetriever.fit(make_data(), recipe, folder=folder, show_progress=False)

    whole = fit(None, 3)
    fit(tmp_path, 1)
    assert fit(tmp_path, 3).fingerprint == whole.fingerprint


def test_what_cannot_be_is_refused_before_questions_are_compared(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(texts, "batch_similar")
    with pytest.raises(ValueError, match="similar_questions is 3 but a batch has batch_size = 8 pairs, which is"):
        TextTrainingConfig(batch_size=8, similar_questions=3)
    training = TextTrainingConfig(batch_size=8, similar_questions=4, teacher_weight=1)
    with pytest.raises(InvalidInputError, match="similar_questions is 4 but the teacher counts alone"):
        TextRetriever.fit(
            make_data(),
            make_recipe(base, training, similarity=COSINE, **ONE),
            teacher=lambda questions, _passages: [0.0] * len(questions),
            show_progress=False,
        )
