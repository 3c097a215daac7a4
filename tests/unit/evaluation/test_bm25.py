"""The BM25 baseline, against the formula written out for a corpus that can be read."""

import builtins
import math
import re

import pytest
import torch

from railsearch.data import QuestionPassages, read_insuranceqa
from railsearch.errors import InvalidInputError, MissingExtraError
from railsearch.evaluation import rank_with_bm25
from railsearch.foundation.metrics import summarize
from tests.support.shared_data import shared_file

PASSAGES = [
    "The cat sat on the mat, and the cat slept.",
    "A dog chased the cat around the garden for a long, long while until both of them were tired.",
    "Dogs are not cats.",
    "Gardens need rain.",
    "The rain in Spain stays in the plain; rain, rain, rain!",
    "Mats are made of wool.",
    "cat",
]
# What BM25's implementation leaves out; the questions and passages here hold no others of it.
STOP_WORDS = {"a", "and", "are", "for", "in", "is", "not", "of", "on", "or", "the"}


def words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w\w+", text.lower()) if word not in STOP_WORDS]


def naive_scores(question: str, passages: list[str], k1: float, b: float) -> list[float]:
    """Sum over the question's words of log(1 + (N - n + 0.5) / (n + 0.5)) f / (f + k1 (1 - b + b length / mean))."""
    corpus = [words(passage) for passage in passages]
    mean = sum(map(len, corpus)) / len(corpus)
    scores = [0.0] * len(corpus)
    for word in words(question):
        n = sum(word in passage for passage in corpus)
        for row, passage in enumerate(corpus):
            f = passage.count(word)
            weight = math.log(1 + (len(corpus) - n + 0.5) / (n + 0.5))
            scores[row] += weight * f / (f + k1 * (1 - b + b * len(passage) / mean))
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (3.0, 1.0), (1.2, 0.0)])
def test_ranks_are_those_of_the_formula(k1: float, b: float) -> None:
    questions = ["where is the cat?", "rain in the garden", "a dog and a cat, cat", "wool mat or plain"]
    for target in range(len(PASSAGES)):
        pairs = [(question, PASSAGES[target]) for question in questions]
        data = QuestionPassages.from_pairs(pairs, passages=PASSAGES)
        expected = []
        for question in questions:
            scores = naive_scores(question, list(data.passages), k1, b)
            order = sorted(range(len(scores)), key=lambda row: (-round(scores[row], 12), row))
            expected.append(1 + order.index(0))  # the target came first
        assert rank_with_bm25(data, data.train, k1=k1, b=b).tolist() == expected


def test_the_best_placed_right_passage_counts() -> None:
    data = QuestionPassages.from_pairs([("cat mat", "a dog"), ("cat mat", "the mat"), ("dog", "the mat")])
    assert data.train.pairs.tolist() == [[0, 0], [0, 1], [1, 1]]
    assert rank_with_bm25(data, data.train).tolist() == [1, 2]


def test_ties_stand_in_the_order_of_rows() -> None:
    passages = ["red fish", "blue fish", "gold fish", "birds"]
    data = QuestionPassages.from_pairs([("fish", passages[2]), ("??", passages[3])], passages=passages)
    assert data.passages == ("gold fish", "birds", "red fish", "blue fish")
    assert rank_with_bm25(data, data.train).tolist() == [1, 2]  # nothing matches: the second of all
    fish = QuestionPassages.from_pairs([("x", passages[0]), ("fish", passages[2])], passages=passages)
    assert rank_with_bm25(fish, fish.train.select([1])).tolist() == [2]


def test_a_copy_of_a_word_is_not_beaten_by_a_longer_passage() -> None:
    data = QuestionPassages.from_pairs([("cat", "cat")], passages=PASSAGES)
    assert rank_with_bm25(data, data.train).dtype == torch.int64
    assert rank_with_bm25(data, data.train).tolist() == [1]


def test_what_cannot_be_ranked() -> None:
    data = QuestionPassages.from_pairs([("cat?", "cat"), ("dog?", "dog")])
    small = QuestionPassages.from_pairs([("cat?", "cat")])
    with pytest.raises(InvalidInputError, match="name passage row 1 but pairs has 1 passages"):
        rank_with_bm25(small, data.train)
    with pytest.raises(InvalidInputError, match="k1 is 0"):
        rank_with_bm25(data, data.train, k1=0)
    with pytest.raises(InvalidInputError, match=r"b is 1\.5"):
        rank_with_bm25(data, data.train, b=1.5)
    wordless = QuestionPassages.from_pairs([("cat?", "the a !")])
    with pytest.raises(InvalidInputError, match="no passage of pairs has a word"):
        rank_with_bm25(wordless, wordless.train)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *others: object) -> object:
        if name == "bm25s":
            raise ImportError(name)
        return real(name, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    data = QuestionPassages.from_pairs([("cat?", "cat")])
    with pytest.raises(MissingExtraError, match=r"bm25s is not installed; from a checkout .* pip install '\.\[text\]'"):
        rank_with_bm25(data, data.train)


@pytest.mark.data
@pytest.mark.slow
def test_insuranceqa_validation_as_measured() -> None:
    archive = shared_file("insuranceqa-en.tar.xz")
    data = read_insuranceqa(archive)
    assert data.validation is not None
    found = summarize(rank_with_bm25(data, data.validation), ks=(1, 10, 100))
    assert found == pytest.approx({"HR@1": 0.199, "HR@10": 0.463, "HR@100": 0.7065, "MRR": 0.28798}, abs=1e-5)
