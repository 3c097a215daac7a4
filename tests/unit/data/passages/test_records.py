"""Questions and passages in tables: CSV, Parquet and Arrow read as JSON lines with the same contents do."""

import json
from pathlib import Path

import polars as pl
import pytest

from railsearch.data import read_pairs, read_passage_texts, read_question_files
from railsearch.errors import InvalidInputError

PAIRS = pl.DataFrame({
    "question": ["who?", "où?", "who?"],
    "passage": ["Ann, of course.", 'Là, "ici"\nou là-bas.', "Bob."],
})  # fmt: skip
SUFFIXES = [".csv", ".tsv", ".parquet", ".arrow", ".ipc", ".feather"]


def write(frame: pl.DataFrame, path: Path) -> Path:
    if path.suffix in {".csv", ".tsv"}:
        frame.write_csv(path, separator="," if path.suffix == ".csv" else "\t")
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.iter_rows(named=True)))
    else:
        frame.write_ipc(path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pairs_of_tables_are_those_of_json_lines(tmp_path: Path, suffix: str) -> None:
    found, expected = (read_pairs(write(PAIRS, tmp_path / f"pairs{each}")) for each in (suffix, ".jsonl"))
    assert found.passages == expected.passages
    assert found.train.texts == expected.train.texts == ("who?", "où?")
    assert found.train.pairs.tolist() == expected.train.pairs.tolist()


def test_hard_negatives_are_a_column_of_lists(tmp_path: Path) -> None:
    table = PAIRS.with_columns(negatives=pl.Series([["Eve."], None, []], dtype=pl.List(pl.String)))
    found = read_pairs(write(table, tmp_path / "pairs.parquet"))
    assert [found.passages[row] for _, row in found.train.hard_negatives.tolist()] == ["Eve."]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_passages_and_questions_of_tables(tmp_path: Path, suffix: str) -> None:
    passages = pl.DataFrame({"id": [7, 8], "title": ["Cats", None], "text": ["purr.", "Dogs bark."]})
    questions = pl.DataFrame(
        {"question": ["who purrs?", "who barks?"], "passage_id": [7, 8], "split": ["train", "test"]}
    )
    corpus = write(passages, tmp_path / f"docs{suffix}")
    assert read_passage_texts(corpus) == {"7": "Cats purr.", "8": "Dogs bark."}
    found = read_question_files(corpus, write(questions, tmp_path / f"questions{suffix}"))
    assert found.train.texts == ("who purrs?",)
    assert found.test is not None
    assert found.test.texts == ("who barks?",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("question,passage\nwho?,Ann, of course.\n", "3 fields in line 2 but the header has 2; quote fields"),
        ("question,answer\nwho?,Ann.\n", "no field 'passage' in line 2; its fields are: question, answer"),
        ("question,passage\n\nwho?,\n", "passage in line 3 of .*pairs.csv is empty"),
        ("question,passage\n", "a header and no rows"),
        ("question,question\na,b\n", "give a header of different names"),
    ],
)
def test_bad_tables_are_refused_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        read_pairs(tmp_path / "pairs.csv")


def test_null_cells_are_absent(tmp_path: Path) -> None:
    table = PAIRS.with_columns(passage=pl.Series(["Ann.", None, "Bob."]))
    with pytest.raises(InvalidInputError, match="no field 'passage' in row 1; its fields are: question"):
        read_pairs(write(table, tmp_path / "pairs.parquet"))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInputError, match="cannot be read as a table"):
        read_pairs(tmp_path / "torn.parquet")
