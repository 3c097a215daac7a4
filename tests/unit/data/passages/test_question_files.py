"""Passages and questions in two files: fields under several names, splits, and errors that name the line."""

import json
from pathlib import Path

import pytest

from railsearch.data import read_question_files
from railsearch.errors import InvalidInputError

DOCS = [{"id": "a", "text": "Ann."}, {"_id": 7, "title": "Bob", "text": "was here"}, {"id": "c", "text": "Cy."}]


def write(folder: Path, questions: list[dict[str, object]], docs: list[dict[str, object]] | None = None) -> list[Path]:
    files = [folder / "docs.jsonl", folder / "questions.jsonl"]
    for file, records in zip(files, (docs or DOCS, questions), strict=True):
        file.write_text("\n".join(map(json.dumps, records)))
    return files


def test_fields_and_splits(tmp_path: Path) -> None:
    data = read_question_files(
        *write(
            tmp_path,
            [
                {"question": "who?", "passage_ids": ["a", 7]},
                {"q": "when?", "pos": ["c"], "split": "train"},
                {"text": "why?", "passage_id": 7, "split": "dev"},
                {"question": "how?", "passage_id": "a", "split": "test"},
            ],
        )
    )
    assert data.passages == ("Ann.", "Bob was here", "Cy.")
    assert data.train.texts == ("who?", "when?")
    assert data.train.pairs.tolist() == [[0, 0], [0, 1], [1, 2]]
    assert data.validation is not None
    assert data.validation.pairs.tolist() == [[0, 1]]
    assert data.test is not None
    assert data.test.texts == ("how?",)


def test_without_splits(tmp_path: Path) -> None:
    data = read_question_files(*write(tmp_path, [{"question": "who?", "passage_id": "a"}]))
    assert (data.validation, data.test) == (None, None)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            {"question": "who?"},
            "line 1 of .* has none of the fields passage_ids, passage_id, pos; its fields are: ques",
        ),
        ({"passage_id": "a"}, "has none of the fields question, q, text"),
        ({"question": "who?", "passage_id": "x"}, "names the passage 'x' but the corpus of 3 has no such id"),
        ({"question": "who?", "passage_ids": []}, "names no right passage"),
        ({"question": " ", "passage_id": "a"}, "is empty"),
        ({"question": "who?", "passage_id": "a", "split": "exam"}, "the split in line 1 of .* is 'exam'; choose from"),
    ],
)
def test_bad_questions(tmp_path: Path, question: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_question_files(*write(tmp_path, [question]))


def test_bad_passages(tmp_path: Path) -> None:
    question = {"question": "who?", "passage_id": "a"}
    with pytest.raises(InvalidInputError, match="repeats the id 'a'"):
        read_question_files(*write(tmp_path, [question], [DOCS[0], DOCS[0]]))
    with pytest.raises(InvalidInputError, match="has none of the fields id, _id"):
        read_question_files(*write(tmp_path, [question], [{"text": "Ann."}]))
