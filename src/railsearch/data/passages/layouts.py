"""Readers of data sets of questions and passages in their published layouts."""

import logging
import re
from enum import StrEnum
from pathlib import Path

from railsearch.data.passages.json_lines import (
    Folder,
    Record,
    open_folder,
    question_entry,
    read_json_list,
)
from railsearch.data.passages.passages import CorpusBuilder, QuestionPassages, QuestionsBuilder, assemble, checked_text
from railsearch.data.passages.records import read_records
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice

logger = logging.getLogger(__name__)

LARGEST_GRADE = 1000
GRADE = re.compile(r"[+-]?[0-9]{1,40}")
QRELS_HEADER = ["query-id", "corpus-id", "score"]


class PassageLayout(StrEnum):
    """Layouts of files with questions and passages."""

    PAIRS = "pairs"
    BEIR = "beir"
    NQ320K = "nq320k"
    INSURANCEQA = "insuranceqa"
    MEDQUAD = "medquad"


def read_passages(path: str | Path, layout: str, *, show_progress: bool | None = None) -> QuestionPassages:
    """Read a data set in one of the layouts: pairs, beir, nq320k, insuranceqa or medquad."""
    readers = {
        PassageLayout.PAIRS: read_pairs,
        PassageLayout.BEIR: read_beir,
        PassageLayout.NQ320K: read_nq320k,
        PassageLayout.INSURANCEQA: read_insuranceqa,
        PassageLayout.MEDQUAD: read_medquad,
    }
    return readers[as_choice(PassageLayout, layout, name="layout")](path, show_progress=show_progress)


def read_pairs(
    path: str | Path,
    *,
    question: str = "question",
    passage: str = "passage",
    negatives: str = "negatives",
    show_progress: bool | None = None,
) -> QuestionPassages:
    """Read training pairs of your own: a question, its right passage, and optionally hard negatives in each record.

    Args:
        path: a .jsonl file, plain or packed as .jsonl.gz or .jsonl.xz, or a .csv, .tsv, Parquet or Arrow table.
        question: field or column of the question.
        passage: field of its passage.
        negatives: field with a list of hard negatives, which become passages of the corpus too. A text that is a right
            passage of the same question in another line is not used as a negative.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    corpus, train = CorpusBuilder(), QuestionsBuilder()
    for record in read_records(path, show_progress=show_progress):
        right = corpus.add(record.text(passage))
        wrong = [corpus.add(text) for text in record.texts(negatives)] if negatives in record.fields else []
        train.add(record.text(question), [right], negatives=wrong)
    return assemble(corpus, train=train, source=str(path))


def read_insuranceqa(path: str | Path, *, show_progress: bool | None = None) -> QuestionPassages:
    """Read InsuranceQA: docs.en.jsonl, and train, valid and test.en.jsonl, in a folder or a tar archive of one.

    12,889 questions to train on, 2,000 for validation and 2,000 for the test, over 27,413 answers.
    """
    with open_folder(path, show_progress=show_progress) as folder:
        corpus = CorpusBuilder()
        for record in folder.records("docs.en.jsonl"):
            add_passage(corpus, record, record.id("id"), record.text("text"))
        splits = [_insuranceqa_questions(folder, f"{name}.en.jsonl", corpus) for name in ("train", "valid", "test")]
    train, validation, test = splits
    return assemble(corpus, train=train, validation=validation, test=test, source=str(path))


def _insuranceqa_questions(folder: Folder, name: str, corpus: CorpusBuilder) -> QuestionsBuilder:
    questions = QuestionsBuilder()
    for record in folder.records(name):
        right = [known_row(corpus, passage_id, record.place) for passage_id in record.ids("pos")]
        if not right:
            raise InvalidInputError(f"{record.place} names no right passage in 'pos'; give at least one.")
        questions.add(record.text("q"), right, question_id=record.id("id"))
    return questions


def read_medquad(path: str | Path, *, show_progress: bool | None = None) -> QuestionPassages:
    """Read MedQuAD, 16,407 medical questions with their answers, as JSON lines with the fields q and a.

    It has no split: hold questions out with `split_questions`.
    """
    return read_pairs(path, question="q", passage="a", show_progress=show_progress)


def is_beir(path: str | Path) -> bool:
    """Return whether a folder has the layout of BEIR: corpus.jsonl, queries.jsonl and qrels."""
    folder = Path(path)
    return (folder / "qrels").is_dir() and all((folder / name).is_file() for name in ("corpus.jsonl", "queries.jsonl"))


def read_beir(path: str | Path, *, show_progress: bool | None = None) -> QuestionPassages:
    """Read a data set in the layout of BEIR: corpus.jsonl, queries.jsonl, and qrels/train, dev and test.tsv.

    A passage is its title, a space, and its text. One of the three files of labels is enough; without train.tsv there
    are no training questions. Scores are the grades of right passages; labels with score 0 are ignored, and so are
    questions without other labels. Passages without any text, which some of these data sets have, are omitted with
    their labels. Dev is used for validation.
    """
    with open_folder(path, show_progress=show_progress) as folder:
        corpus = CorpusBuilder()
        empty: set[str] = set()
        for record in folder.records("corpus.jsonl"):
            if record.has_text():
                add_passage(corpus, record, record.id("_id"), record.titled_text())
            else:
                empty.add(record.id("_id"))
        if not corpus.texts:
            raise InvalidInputError(f"{path} has no passages; give at least one.")
        if empty:
            logger.warning("%s: %d passages without text are omitted", path, len(empty))
        questions: dict[str, str] = {}
        for record in folder.records("queries.jsonl"):
            if questions.setdefault(record.id("_id"), record.text("text")) != record.text("text"):
                raise InvalidInputError(f"{record.place} repeats the id {record.id('_id')!r} of another question.")
        names = [name for name in ("train", "dev", "test") if folder.has(f"qrels/{name}.tsv")]
        if not names:
            raise InvalidInputError(f"{path} holds none of qrels/train.tsv, dev.tsv and test.tsv; give at least one.")
        splits = {name: _beir_labels(folder, f"qrels/{name}.tsv", corpus, questions, empty) for name in names}
    train = splits.get("train", QuestionsBuilder())
    return assemble(corpus, train=train, validation=splits.get("dev"), test=splits.get("test"), source=str(path))


def _beir_labels(
    folder: Folder, name: str, corpus: CorpusBuilder, questions: dict[str, str], empty: set[str]
) -> QuestionsBuilder:
    right: dict[str, list[tuple[int, int]]] = {}
    num_wrong = 0
    for line, text in folder.lines(name):
        place = f"line {line} of {folder.path / name}"
        fields = text.split("\t")
        if line == 1 and fields == QRELS_HEADER:
            continue
        if len(fields) != 3 or GRADE.fullmatch(fields[2].strip()) is None:
            raise InvalidInputError(
                f"{place} is {text[:80]!r}; give a question's id, a passage's id and a whole score, with tabs between."
            )
        if fields[0] not in questions:
            raise InvalidInputError(f"{place} names the question {fields[0]!r}, which is not in queries.jsonl.")
        if fields[1] in empty:
            continue
        row, grade = known_row(corpus, fields[1], place), int(fields[2])
        if grade > LARGEST_GRADE:
            raise InvalidInputError(f"{place} has the score {fields[2][:40]}; give at most {LARGEST_GRADE}.")
        if grade > 0:
            right.setdefault(fields[0], []).append((row, grade))
        else:
            num_wrong += 1
    if num_wrong:
        logger.info("%s: %d labels with score 0 are not used", folder.path / name, num_wrong)
    labelled = QuestionsBuilder()
    for question_id, labels in right.items():
        rows, grades = zip(*labels, strict=True)
        labelled.add(questions[question_id], rows, grades=grades, question_id=question_id)
    return labelled


def read_nq320k(path: str | Path, *, show_progress: bool | None = None) -> QuestionPassages:
    """Read NQ320K as it is published with GenRet (github.com/sunnweiwei/GenRet, dataset/nq320k.zip), unpacked.

    corpus_lite.json is a list of passages, whose positions are their ids; train.json and dev.json are lists of
    [question, position of its passage]. Dev is the test set of the papers, so there is no validation set: hold some
    questions out with `split_questions(data, test_share=0)`. After that, add the generated questions in
    train.json.qg.json with `add_generated`. The layout follows GenRet's own reading code and notes by other users of
    the files (109,739 passages, 307,373 and 7,830 questions, 1,097,390 generated ones); it was not tested with the
    files themselves.
    """
    folder = Path(path)
    for name in ("corpus_lite.json", "train.json", "dev.json"):
        if not (folder / name).is_file():
            raise InvalidInputError(f"{folder} holds no file {name}; unpack nq320k.zip of GenRet there.")
    corpus = CorpusBuilder()
    file = str(folder / "corpus_lite.json")
    for entry, text in enumerate(read_json_list(file, show_progress=show_progress)):
        corpus.add(checked_text(text, "passage", f"entry {entry} of {file}"), str(entry))
    splits = []
    for file in (str(folder / name) for name in ("train.json", "dev.json")):
        questions = QuestionsBuilder()
        for entry, value in enumerate(read_json_list(file, show_progress=show_progress)):
            place = f"entry {entry} of {file}"
            text, passages = question_entry(value, place)
            questions.add(text, [known_row(corpus, passage, place) for passage in passages], question_id=str(entry))
        splits.append(questions)
    return assemble(corpus, train=splits[0], test=splits[1], source=str(path))


def add_passage(corpus: CorpusBuilder, record: Record, passage_id: str, text: str) -> None:
    """Add a passage; refuse an id that is taken."""
    if passage_id in corpus.rows:
        raise InvalidInputError(f"{record.place} repeats the id {passage_id!r}; give every passage its own.")
    corpus.add(text, passage_id)


def known_row(corpus: CorpusBuilder, passage_id: str, place: str) -> int:
    """Return the row of the passage that a label names."""
    if passage_id not in corpus.rows:
        raise InvalidInputError(
            f"{place} names the passage {passage_id!r} but the corpus of {len(corpus.rows):,} has no such id; "
            "repair the label, or add the passage."
        )
    return corpus.rows[passage_id]
