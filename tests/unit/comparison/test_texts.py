"""`compare` on texts: BM25 and frozen embeddings of a language model on the same questions."""

from pathlib import Path

import pytest
import torch

from railsearch import DotProduct, compare, evaluate
from railsearch.data import QuestionPassages, split_questions
from railsearch.encoders import Side, TextEncoder, TextEncoderConfig
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.evaluation import rank_with_bm25
from tests.support.tiny_text import PAIRS, make_base

QUESTIONS = QuestionPassages.from_pairs(
    [(f"{question} {word}", passage) for question, passage in PAIRS for word in ("who", "it", "is", "end")]
)
SHORT = {"seeds": 1, "epochs": 1, "num_components": 2, "show_progress": False}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert")


def test_systems_and_resume(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = split_questions(QUESTIONS, validation_share=0.1, test_share=0.2, seed=3)
    report = compare(questions=QUESTIONS, model=base, split_seed=3, folder=tmp_path / "run", **SHORT)
    assert [system.name for system in report.systems] == ["BM25", "frozen cosine", "tuned cosine", "MoL"]
    assert data.test is not None
    assert torch.equal(report.systems[0].evaluations[0].ranks, rank_with_bm25(data, data.test))
    encoder = TextEncoder.from_pretrained(TextEncoderConfig(base=str(base), max_query_length=32, max_passage_length=32))
    frozen = evaluate(
        DotProduct(dim=16, cosine=True),
        encoder.encode(data.test.texts, Side.QUERY)[:, 0],
        encoder.encode(data.passages, Side.PASSAGE)[:, 0],
        data.test.pairs,
    )
    assert torch.equal(report.systems[1].evaluations[0].ranks, frozen.ranks)
    assert "56 questions to train on, 8 for validation and 16 for the test, drawn with seed 3" in str(report)
    assert "the mean over the outputs of bert, computed once" in str(report)
    assert report.systems[0].bytes_per_item is None

    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError("texts were encoded again")

    monkeypatch.setattr(TextEncoder, "encode", refuse)
    again = compare(questions=QUESTIONS, model=base, split_seed=3, folder=tmp_path / "run", **SHORT)
    assert [system.metrics for system in again.systems] == [system.metrics for system in report.systems]
    with pytest.raises(AssertionError, match="encoded again"):
        compare(questions=QUESTIONS, model=base, split_seed=4, folder=tmp_path / "run", **SHORT)


def test_given_splits(base: Path) -> None:
    data = split_questions(QUESTIONS, validation_share=0.2, test_share=0.5, seed=1)
    report = compare(questions=data, model=base, **SHORT)
    assert report.systems[0].evaluations[0].num_queries == 40
    assert "drawn with seed" not in str(report)


def test_wrong_input(base: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="model is missing; give questions and model"):
        compare(questions=QUESTIONS)
    with pytest.raises(InvalidInputError, match="is none; ask for a larger share"):
        compare(questions=PAIRS[:2], model=base)
    with pytest.raises(ModelFolderError, match="does not exist"):
        compare(questions=QUESTIONS, model=tmp_path / "missing")
