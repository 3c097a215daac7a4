"""Questions and passages: from pairs and from published layouts, and what is refused, with its line."""

import gzip
import json
import logging
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch.data import (
    QuestionPassages,
    Questions,
    add_generated,
    is_beir,
    read_beir,
    read_insuranceqa,
    read_medquad,
    read_nq320k,
    read_pairs,
    read_passages,
    split_questions,
)
from railsearch.errors import InvalidInputError
from tests.support.shared_data import shared_file


def write_lines(path: Path, *records: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "wb") as file:  # type: ignore[operator]
        file.write(text.encode())
    return path


def right(data: QuestionPassages, questions: Questions | None) -> dict[str, list[str]]:
    """Each question's right passages, as text."""
    assert questions is not None
    found: dict[str, list[str]] = {text: [] for text in questions.texts}
    for question, passage in questions.pairs.tolist():
        found[questions.texts[question]].append(data.passages[passage])
    return found


def negatives(data: QuestionPassages) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for question, passage in data.train.hard_negatives.tolist():
        found.setdefault(data.train.texts[question], []).append(data.passages[passage])
    return found


def write_insuranceqa(folder: Path) -> Path:
    write_lines(
        folder / "docs.en.jsonl", {"id": "a", "text": "A."}, {"id": "b", "text": "B."}, {"id": "c", "text": "A."}
    )
    write_lines(
        folder / "train.en.jsonl", {"id": "0", "q": "one?", "pos": ["b", "c"]}, {"id": "1", "q": "2?", "pos": ["a"]}
    )
    write_lines(folder / "valid.en.jsonl", {"id": "0", "q": "three?", "pos": ["b"]})
    write_lines(folder / "test.en.jsonl", {"id": "0", "q": "four?", "pos": ["a"]})
    return folder


def write_beir(folder: Path) -> Path:
    write_lines(
        folder / "corpus.jsonl",
        {"_id": "d1", "title": "Cats", "text": "purr."},
        {"_id": "d2", "title": "", "text": "Dogs bark."},
        {"_id": "d3", "text": "Birds sing."},
    )
    write_lines(folder / "queries.jsonl", {"_id": "q1", "text": "who purrs?"}, {"_id": "q2", "text": "who barks?"},
                {"_id": "q3", "text": "who swims?"})  # fmt: skip
    (folder / "qrels").mkdir()
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(f"{header}q1\td1\t1\nq1\td2\t0\nq3\td3\t0\n")
    (folder / "qrels" / "test.tsv").write_text(f"{header}q2\td2\t2\nq2\td3\t1\n")
    return folder


def write_nq320k(folder: Path) -> Path:
    (folder / "corpus_lite.json").write_text(json.dumps(["Paris.", "Rome.", " Paris. "]))
    (folder / "train.json").write_text(json.dumps([["capital of france", 2], ["capital of italy", [1]]]))
    (folder / "dev.json").write_text(json.dumps([["where is the louvre", 0]]))
    (folder / "train.json.qg.json").write_text(json.dumps([["a city", 1], ["a city", 2], ["Where is  the Louvre", 0]]))
    return folder


def test_same_texts_are_one() -> None:
    pairs = [("who?", "Ann."), (" who?", "Bob."), ("when?", "Ann. "), ("who?", "Ann.")]
    found = QuestionPassages.from_pairs(pairs, passages=["Eve.", "Bob."])
    assert found.passages == ("Ann.", "Bob.", "Eve.")
    assert found.passage_ids == ("0", "1", "2")
    assert found.train.texts == ("who?", "when?")
    assert found.train.pairs.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert found.train.hard_negatives.shape == (0, 2)
    assert found.num_duplicates == 3
    assert (found.validation, found.test) == (None, None)
    assert repr(found) == "QuestionPassages(3 passages; questions: 2 to train; pairs)"
    assert repr(found.train) == "Questions(2 with 3 right passages)"


def test_tables_are_pairs() -> None:
    table = pl.DataFrame({"n": [1, 2], "passage": ["A.", "B."], "question": ["a?", "b?"]})
    found = QuestionPassages.from_pairs(table)
    assert right(found, found.train) == {"a?": ["A."], "b?": ["B."]}
    with pytest.raises(InvalidInputError, match="faq has no column 'passage'; its columns are: n, question"):
        QuestionPassages.from_pairs(table.drop("passage"), source="faq")
    with pytest.raises(InvalidInputError, match="passage in row 1 of pairs is 'None'"):
        QuestionPassages.from_pairs(table.with_columns(passage=pl.Series(["A.", None])))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "pairs has no passages"),
        (["ab"], "row 0 of pairs is not a pair"),
        ("faq.jsonl", "pairs is a path or a text, 'faq.jsonl'; read a file with read_passages"),
        (Path("faq.jsonl"), "pairs is a path or a text, 'faq.jsonl'"),
        ([("q", "p"), ("q",)], "row 1 of pairs is not a pair"),
        ([("q", "p"), ("q", " ")], "passage in row 1 of pairs is empty"),
        ([("", "p")], "question in row 0 of pairs is empty"),
        ([("q", 3)], "passage in row 0 of pairs is '3'; give text"),
        ([("q", "half \ud83d")], "passage in row 0 of pairs holds half of a character, at 5"),
    ],
)
def test_bad_pairs(pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        QuestionPassages.from_pairs(pairs)


def test_select_numbers_anew() -> None:
    questions = Questions(
        ("a", "b", "c"), ("a?", "b?", "c?"), torch.tensor([[0, 4], [1, 2], [1, 7], [2, 0]]), torch.tensor([[1, 3]])
    )
    found = questions.select([2, 1])
    assert (found.ids, found.texts) == (("c", "b"), ("c?", "b?"))
    assert found.pairs.tolist() == [[0, 0], [1, 2], [1, 7]]
    assert found.hard_negatives.tolist() == [[1, 3]]
    assert len(questions.select([])) == 0
    for rows in ([0, 0], [3], [-1], [[0]]):
        with pytest.raises(InvalidInputError, match="rows"):
            questions.select(rows)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.xz"])
def test_pairs_from_files(tmp_path: Path, suffix: str) -> None:
    path = write_lines(
        tmp_path / f"pairs{suffix}",
        {"q": "who?", "a": "Ann.", "negatives": ["Bob.", "Eve."]},
        {"q": "who?", "a": "Bob."},
        {"q": "où?", "a": "Là."},
    )
    found = read_pairs(path, question="q", passage="a")
    assert right(found, found.train) == {"who?": ["Ann.", "Bob."], "où?": ["Là."]}
    assert negatives(found) == {"who?": ["Eve."]}  # Bob is right, as another line says
    assert found.source == str(path)
    assert read_medquad(path).train.texts == found.train.texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "a", "passage": "b"}\n\n[1]\n', r"pairs.jsonl holds '\[1\]' in line 3"),
        (b'{"question": "a", "passage": "b"}\n{"quest', "pairs.jsonl holds no JSON in line 2"),
        (b'{"question": "a", "passage": "b"}\n{"question": "\xe9"}', "pairs.jsonl is not utf-8 text in line 2"),
        (b'{"question": "a"}', "pairs.jsonl has no field 'passage' in line 1; its fields are: question"),
        (b'{"question": "a", "passage": ""}', "passage in line 1 of .*pairs.jsonl is empty"),
        (b'{"question": " ", "passage": "b"}', "question in line 1 of .*pairs.jsonl is empty"),
        (b'{"question": ["a"], "passage": "b"}', "question in line 1 of .*pairs.jsonl is .*; give text"),
        (b'{"question": "a", "passage": "b", "negatives": "c"}', "negatives in line 1 of .* is not a list"),
        (b"[" * 100_000, "pairs.jsonl holds no JSON in line 1"),
        (b"\n", "pairs.jsonl has no passages"),
    ],
)
def test_bad_lines(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "pairs.jsonl").write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_pairs(tmp_path / "pairs.jsonl")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('\ufeff{"question": "a", "passage": "b"}\r\n')
    assert read_pairs(tmp_path / "pairs.jsonl").passages == ("b",)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_torn_archives_are_refused(tmp_path: Path, suffix: str) -> None:
    path = write_lines(
        tmp_path / f"pairs.jsonl{suffix}", *({"question": f"{n}", "passage": f"{n}"} for n in range(999))
    )
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_pairs(path)
    path.write_bytes(b"no archive")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_pairs(path)
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_pairs(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("is_packed", [False, True])
def test_insuranceqa(tmp_path: Path, is_packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    path = write_insuranceqa(tmp_path / "iqa")
    if is_packed:
        with tarfile.open(tmp_path / "iqa.tar.xz", "w:xz") as archive:
            archive.add(path, arcname="iqa")
        path = tmp_path / "iqa.tar.xz"
    with caplog.at_level(logging.INFO):
        found = read_insuranceqa(path)
    assert found.passage_ids == ("a", "b")
    assert right(found, found.train) == {"one?": ["A.", "B."], "2?": ["A."]}
    assert right(found, found.validation) == {"three?": ["B."]}
    assert right(found, found.test) == {"four?": ["A."]}
    assert found.train.ids == ("0", "1")
    assert (found.num_duplicates, found.other_ids) == (1, {"c": 0})
    assert "1 of 3 passages repeat the text of another" in caplog.text


@pytest.mark.parametrize(
    ("file", "record", "message"),
    [
        ("test", {"id": "1", "q": "x?", "pos": ["z"]}, "line 2 of .*test.en.jsonl names the passage 'z'.*corpus of 3"),
        ("test", {"id": "1", "q": "x?", "pos": []}, "line 2 of .*test.en.jsonl names no right passage"),
        ("test", {"id": "1", "q": "x?", "pos": "a"}, "pos in line 2 of .*test.en.jsonl is not a list"),
        ("docs", {"id": "a", "text": "new"}, "line 4 of .*docs.en.jsonl repeats the id 'a'"),
        ("docs", {"id": None, "text": "new"}, "id in line 4 of .*docs.en.jsonl is 'None'"),
        ("docs", {"id": "d", "text": ""}, "text in line 4 of .*docs.en.jsonl is empty"),
    ],
)
def test_bad_labels(tmp_path: Path, file: str, record: object, message: str) -> None:
    write_insuranceqa(tmp_path)
    with (tmp_path / f"{file}.en.jsonl").open("a") as lines:
        lines.write(json.dumps(record) + "\n")
    with pytest.raises(InvalidInputError, match=message):
        read_insuranceqa(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    (write_insuranceqa(tmp_path) / "valid.en.jsonl").unlink()
    with pytest.raises(InvalidInputError, match=r"holds no file valid.en.jsonl"):
        read_insuranceqa(tmp_path)
    with pytest.raises(InvalidInputError, match=r"holds no file corpus.jsonl"):
        read_beir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"holds no file corpus_lite.json"):
        read_nq320k(tmp_path)
    with pytest.raises(InvalidInputError, match=r"is neither a folder nor an archive .* data\.layout=pairs"):
        read_insuranceqa(tmp_path / "absent")
    (tmp_path / "bad.tar.xz").write_bytes(b"no archive")
    with pytest.raises(InvalidInputError, match=r"bad.tar.xz cannot be read"):
        read_insuranceqa(tmp_path / "bad.tar.xz")
    (tmp_path / "valid.en.jsonl").touch()
    with pytest.raises(InvalidInputError, match="has no validation questions"):
        read_insuranceqa(tmp_path)


def test_questions_on_two_sides_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_insuranceqa(tmp_path)
    write_lines(
        tmp_path / "test.en.jsonl", {"id": "0", "q": "one?", "pos": ["b"]}, {"id": "1", "q": "x?", "pos": ["b"]}
    )
    read_insuranceqa(tmp_path)
    assert "1 of 2 test questions are also training questions" in caplog.text


def test_beir(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = read_beir(write_beir(tmp_path))
    assert found.passages == ("Cats purr.", "Dogs bark.", "Birds sing.")
    assert right(found, found.train) == {"who purrs?": ["Cats purr."]}
    assert right(found, found.test) == {"who barks?": ["Dogs bark.", "Birds sing."]}
    assert found.validation is None
    assert found.train.ids == ("q1",)
    assert "2 labels with score 0" in caplog.text
    (tmp_path / "qrels" / "train.tsv").rename(tmp_path / "qrels" / "dev.tsv")
    found = read_beir(tmp_path)
    assert len(found.train) == 0
    assert found.train.pairs.shape == (0, 2)
    assert right(found, found.validation) == {"who purrs?": ["Cats purr."]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q9\td1\t1", "line 4 of .*test.tsv names the question 'q9'"),
        ("q1\td9\t1", "line 4 of .*test.tsv names the passage 'd9'"),
        ("q1\td1", "line 4 of .*test.tsv is 'q1.td1'"),
        ("q1\td1\t9999999999999999999999", "line 4 of .*test.tsv has the score 9+; give at most 1000"),
        ("q1\td1\t--1", "line 4 of .*test.tsv is 'q1.td1.t--1'; give a question's id"),
        ("q1\td1\t" + "9" * 5000, "line 4 of .*test.tsv is 'q1.td1.t9+'; give a question's id"),
        ("q1\td1\tgood", "line 4 of .*test.tsv is 'q1.td1.tgood'; give a question's id"),
    ],
)
def test_bad_qrels(tmp_path: Path, line: str, message: str) -> None:
    write_beir(tmp_path)
    with (tmp_path / "qrels" / "test.tsv").open("a") as file:
        file.write(line)
    with pytest.raises(InvalidInputError, match=message):
        read_beir(tmp_path)


def test_grades_and_passages_without_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_lines(
        tmp_path / "corpus.jsonl",
        {"_id": "d1", "title": "", "text": "One."}, {"_id": "d2", "title": " ", "text": ""},
        {"_id": "d3", "title": "Only a title", "text": ""}, {"_id": "d4", "text": "One."},
    )  # fmt: skip
    write_lines(tmp_path / "queries.jsonl", {"_id": "q1", "text": "who?"}, {"_id": "q2", "text": "what?"})
    (tmp_path / "qrels").mkdir()
    assert is_beir(tmp_path)
    labels = ["q1\td1\t1", "q1\td2\t3", "q1\td3\t2", "q1\td4\t4", "q2\td3\t1"]
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(labels))
    found = read_beir(tmp_path)
    assert found.passage_ids == ("d1", "d3")
    assert "1 passages without text are omitted" in caplog.text
    assert found.test is not None
    assert found.test.pairs.tolist() == [[0, 0], [0, 1], [1, 1]]
    assert found.test.grades is not None
    assert found.test.grades.tolist() == [4, 2, 1]  # two passages with one text have the better grade
    chosen = found.test.select([1, 0])
    assert chosen.grades is not None
    assert (chosen.pairs.tolist(), chosen.grades.tolist()) == ([[0, 1], [1, 0], [1, 1]], [1, 4, 2])
    assert not is_beir(tmp_path / "qrels")


def test_a_question_id_has_one_text(tmp_path: Path) -> None:
    with (write_beir(tmp_path) / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "q1", "text": "who else?"}))
    with pytest.raises(InvalidInputError, match=r"line 4 of .*queries.jsonl repeats the id 'q1' of another question"):
        read_beir(tmp_path)


def test_beir_without_labels_or_text(tmp_path: Path) -> None:
    write_beir(tmp_path)
    write_lines(tmp_path / "corpus.jsonl", {"_id": "d1", "title": "", "text": ""})
    with pytest.raises(InvalidInputError, match="has no passages; give at least one"):
        read_beir(tmp_path)
    write_lines(tmp_path / "corpus.jsonl", {"_id": "d1", "title": "", "text": "A."})
    for name in ("train", "test"):
        (tmp_path / "qrels" / f"{name}.tsv").unlink()
    with pytest.raises(InvalidInputError, match=r"none of qrels/train.tsv, dev.tsv and test.tsv"):
        read_beir(tmp_path)


def test_nq320k_with_generated_questions(tmp_path: Path) -> None:
    found = read_nq320k(write_nq320k(tmp_path))
    assert found.passages == ("Paris.", "Rome.")
    assert right(found, found.train) == {"capital of france": ["Paris."], "capital of italy": ["Rome."]}
    assert right(found, found.test) == {"where is the louvre": ["Paris."]}
    assert found.validation is None
    more = add_generated(found, tmp_path / "train.json.qg.json")  # place 2 is the passage of place 0
    assert right(more, more.train) == right(found, found.train) | {"a city": ["Paris.", "Rome."]}
    assert (more.num_leaks, found.num_leaks) == (1, 0)
    assert more.test is found.test


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus_lite.json", '["a", ""]', "passage in entry 1 of .*corpus_lite.json is empty"),
        ("corpus_lite.json", '{"a": 1}', "corpus_lite.json holds no JSON list"),
        ("train.json", '[["q", 0], ["q", 9]]', "entry 1 of .*train.json names the passage '9'"),
        ("train.json", '[["q", 0], ["q"]]', "entry 1 of .*train.json is .*; give .question, passage"),
        ("dev.json", '[["q", []]]', "entry 0 of .*dev.json names no right passage"),
        ("dev.json", '[["q", 0]', "dev.json cannot be read as JSON"),
        ("dev.json", b'[["\xe9", 0]]', "dev.json is not utf-8 text at byte 3"),
    ],
)
def test_bad_nq320k(tmp_path: Path, file: str, content: str | bytes, message: str) -> None:
    write_nq320k(tmp_path)
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInputError, match=message):
        read_nq320k(tmp_path)


def test_layouts_by_name(tmp_path: Path) -> None:
    writers: dict[str, Callable[[Path], Path]] = {
        "pairs": lambda folder: write_lines(folder / "a.jsonl", {"question": "a", "passage": "b"}),
        "medquad": lambda folder: write_lines(folder / "a.jsonl", {"q": "a", "a": "b"}),
        "beir": write_beir,
        "nq320k": write_nq320k,
        "insuranceqa": write_insuranceqa,
    }
    for layout, write in writers.items():
        (tmp_path / layout).mkdir()
        assert len(read_passages(write(tmp_path / layout), layout).train) > 0
    with pytest.raises(InvalidInputError, match="layout is 'trec'; choose from: pairs, beir, nq320k, insuranceqa"):
        read_passages(tmp_path, "trec")


def test_splits_hold_questions_out() -> None:
    pairs = [(f"question {n % 40}?", f"passage {n}") for n in range(80)]
    whole = QuestionPassages.from_pairs(pairs)
    split = split_questions(whole, validation_share=0.25, test_share=0.1, seed=1)
    assert split.validation is not None
    assert split.test is not None
    assert (len(split.train), len(split.validation), len(split.test)) == (26, 10, 4)
    found = [right(split, part) for part in (split.train, split.validation, split.test)]
    assert found[0] | found[1] | found[2] == right(whole, whole.train)
    assert sum(map(len, found)) == 40  # nobody is on two sides
    assert split.passages == whole.passages
    same, other = (split_questions(whole, seed=seed).test for seed in (0, 1))
    assert same is not None
    assert other is not None
    again = split_questions(whole, seed=0).test
    assert again is not None
    assert same.texts == again.texts != other.texts
    validation_only = split_questions(whole, test_share=0)
    assert validation_only.test is None
    assert len(validation_only.train) == 36


def test_splits_that_cannot_be() -> None:
    data = QuestionPassages.from_pairs([(f"{n}?", f"{n}") for n in range(10)])
    with pytest.raises(InvalidInputError, match=r"test_share is 0.01 but 0.01 of 10 questions is none"):
        split_questions(data, test_share=0.01)
    with pytest.raises(InvalidInputError, match="5 and 5 of 10 questions would be held out"):
        split_questions(data, validation_share=0.5, test_share=0.5)
    with pytest.raises(InvalidInputError, match="already has 1 test questions; pass test_share=0"):
        split_questions(split_questions(data), validation_share=0)


def test_generated_questions_join_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = read_insuranceqa(write_insuranceqa(tmp_path))
    path = write_lines(
        tmp_path / "generated.jsonl.gz",
        {"passage_id": "b", "question": "new?"},
        {"passage_id": "b", "question": "2?"},
        {"id": "c", "queries": ["newer?", "Three?", "FOUR?"]},
    )
    with caplog.at_level(logging.INFO):
        found = add_generated(data, path)
    assert right(found, found.train) == {"one?": ["A.", "B."], "2?": ["A.", "B."], "new?": ["B."], "newer?": ["A."]}
    assert found.train.ids == ("0", "1", "2", "3")
    assert found.num_leaks == 2
    assert "3 generated questions were added, of which 1 are not new; 2 more are held out" in caplog.text
    bad = [{"passage_id": "b", "question": "new?"}, {"passage_id": "z", "question": "x"}]
    path = write_lines(tmp_path / "bad.jsonl", *bad)
    with pytest.raises(InvalidInputError, match=r"line 2 of .*bad.jsonl is for the passage 'z'"):
        add_generated(data, path)


def test_a_generated_question_is_no_negative_of_its_passage(tmp_path: Path) -> None:
    records = [{"question": "a?", "passage": "A.", "negatives": ["B.", "C."]}]
    data = read_pairs(write_lines(tmp_path / "pairs.jsonl", *records))
    found = add_generated(data, write_lines(tmp_path / "new.jsonl", {"passage_id": 1, "question": "a?"}))
    assert right(found, found.train) == {"a?": ["A.", "B."]}
    assert negatives(found) == {"a?": ["C."]}


@pytest.mark.data
def test_insuranceqa_as_published() -> None:
    archive = shared_file("insuranceqa-en.tar.xz")
    found = read_insuranceqa(archive)
    assert found.validation is not None
    assert found.test is not None
    counts = [len(questions) for questions in (found.train, found.validation, found.test)]
    assert (len(found.passages), counts, found.num_duplicates) == (27_413, [12_889, 2_000, 2_000], 0)
    assert [len(questions.pairs) for questions in (found.train, found.validation, found.test)] == [21_325, 3_354, 3_308]
    first = found.test.pairs[found.test.pairs[:, 0] == 0][:, 1].tolist()
    assert found.test.texts[0] == "What Happens When Term Life Insurance Is Paid Up?"
    assert {found.passage_ids[row] for row in first} == {"16164", "99", "26337"}


@pytest.mark.data
def test_medquad_as_published() -> None:
    file = shared_file("medquad.jsonl.xz")
    found = read_medquad(file)
    assert (len(found.passages), len(found.train), len(found.train.pairs)) == (15_809, 14_979, 16_359)
    assert found.num_duplicates == 16_407 - 15_809
