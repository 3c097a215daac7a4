"""Mined negatives of text training: those of a naive loop, drawn into batches, the same after a resume."""

import dataclasses
from pathlib import Path

import pytest
import torch

from railsearch import TextRetriever
from railsearch.data import QuestionPassages, split_questions
from railsearch.errors import InvalidInputError
from railsearch.foundation import progress
from railsearch.models import TextModel
from railsearch.recipes import TextTrainingConfig
from railsearch.training.mining import NegativeMiner, mine_negatives
from tests.support.tiny_text import PAIRS, make_base, make_recipe, make_retriever

pytest.importorskip("transformers")

DATA = QuestionPassages.from_pairs([*PAIRS, (PAIRS[0][0], PAIRS[5][1]), (PAIRS[3][0], PAIRS[9][1])])
QUIET = {"show_progress": False}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert")


def naive_negatives(model: TextModel, *, depth: int, margin: float) -> list[list[int]]:
    """Return question and passage of every mined negative, by a loop over all scores."""
    scores = model.similarity.score(model.query_parts(DATA.train.texts), model.item_parts(DATA.passages)).tolist()
    found = []
    for question, row in enumerate(scores):
        right = [passage for owner, passage in DATA.train.pairs.tolist() if owner == question]
        best = max(row[passage] for passage in right)
        order = sorted(range(len(row)), key=lambda passage: (-row[passage], passage))[:depth]
        found += [
            [question, passage]
            for passage in sorted(order)
            if passage not in right and row[passage] <= best - margin * abs(best)
        ]
    return found


@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize("pooling", ["tokens", "mean"])
def test_mined_negatives_are_those_of_a_naive_loop(base: Path, pooling: str, margin: float) -> None:
    counts = {"num_query_components": 1, "num_item_components": 1} if pooling == "mean" else {}
    model = make_retriever(base, pooling=pooling, **counts).model
    config = TextTrainingConfig(mine_negatives=2, mine_depth=7, mine_margin=margin)
    mined = mine_negatives(model, DATA, config, torch.Generator())
    assert mined.tolist() == naive_negatives(model, depth=7, margin=margin)
    assert not model.training


def test_few_passages_are_searched_besides_the_right_ones(base: Path) -> None:
    data = dataclasses.replace(DATA, train=DATA.train.select(range(4)))
    config = TextTrainingConfig(mine_negatives=1, mine_depth=20, mine_margin=0.0, mine_passages=3)
    generator = torch.Generator().manual_seed(0)
    drawn = set(torch.randperm(20, generator=torch.Generator().manual_seed(0))[:3].tolist())
    found = mine_negatives(make_retriever(base).model, data, config, generator)
    assert set(found[:, 1].tolist()) <= drawn | set(data.train.pairs[:, 1].tolist())


def test_a_resumed_run_keeps_the_negatives_of_its_epoch(base: Path, tmp_path: Path) -> None:
    model = make_retriever(base).model
    config = TextTrainingConfig(mine_negatives=2, mine_depth=7)
    first = NegativeMiner(model, DATA, config, tmp_path)
    mined = {epoch: first.negatives_of(epoch).hard_negatives for epoch in (1, 2, 3)}
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    resumed = NegativeMiner(model, DATA, config, tmp_path)
    assert torch.equal(resumed.negatives_of(3).hard_negatives, mined[3])
    assert not torch.equal(resumed.negatives_of(4).hard_negatives, mined[3])
    assert len(list(tmp_path.iterdir())) == 2  # those of the last two epochs


def test_training_with_mined_negatives_changes_the_model_and_can_be_repeated(base: Path, tmp_path: Path) -> None:
    settings = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01}
    mining = TextTrainingConfig(**settings, mine_negatives=2, mine_margin=0.0)
    runs = [
        TextRetriever.fit(PAIRS, make_recipe(base, config, similarity=similarity), folder=folder, **QUIET)
        for config, folder, similarity in [
            (mining, None, None),
            (mining, tmp_path / "run", None),
            (TextTrainingConfig(**settings), None, None),
            (mining, None, {"kind": "mixture_of_logits", "learns_temperature": True}),
        ]
    ]
    losses = [run.report.epochs[-1].loss for run in runs]
    assert losses[0] == losses[1]
    assert losses[0] > losses[2]  # more negatives, and harder ones
    assert runs[0].model.similarity.temperature == 0.05
    assert runs[3].model.similarity.temperature != 0.05


def test_texts_longer_than_the_model_are_refused(base: Path) -> None:
    assert make_retriever(base, max_passage_length=32).model.encoder.dim == 16
    with pytest.raises(InvalidInputError, match=r"max_passage_length is 33 but .* takes 32 tokens; ask for"):
        _ = make_retriever(base, max_passage_length=33).model


def test_encoding_for_mining_and_validation_writes_lines_without_a_terminal(
    base: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    data = split_questions(DATA, validation_share=0.2, test_share=0.0, seed=0)
    TextRetriever.fit(data, make_recipe(base, TextTrainingConfig(epochs=1, mine_negatives=1)))
    lines = capfd.readouterr().err.splitlines()
    encoded = [place for place, line in enumerate(lines) if line == "encoding passage texts: 20 of 20"]
    epochs = [place for place, line in enumerate(lines) if line.startswith("epoch ")]
    assert len(encoded) == 3  # validation of the start, mining, validation
    assert encoded[0] < epochs[0] < encoded[1] < encoded[2] < epochs[1]


def test_more_negatives_than_the_depth_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="mine_negatives is 20 but they are drawn from mine_depth = 5"):
        TextTrainingConfig(mine_negatives=20, mine_depth=5)
