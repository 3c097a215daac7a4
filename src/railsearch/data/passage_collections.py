"""Collections of questions and passages in the layouts they are published in."""

from pathlib import Path

from railsearch.data.passage_files import Folder, Record, open_folder, read_json_lines
from railsearch.data.passages import CorpusBuilder, QuestionPassages, QuestionsBuilder, assemble
from railsearch.errors import InvalidInputError


def read_pairs(
    path: str | Path,
    *,
    question: str = "question",
    passage: str = "passage",
    negatives: str = "negatives",
    show_progress: bool | None = None,
) -> QuestionPassages:
    """Read pairs of your own to train on: JSON lines with a question, a passage that is right for it, and optionally
    passages that look right and are not.

    Args:
        path: a .jsonl file, or one packed as .jsonl.gz or .jsonl.xz.
        question: the field of the question.
        passage: the field of its passage.
        negatives: the field of a list of hard negatives, which become passages of the corpus too; where a text is a
            right passage of the same question in another line, it is no negative.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    corpus, train = CorpusBuilder(), QuestionsBuilder()
    for record in read_json_lines(path, show_progress=show_progress):
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


def add_passage(corpus: CorpusBuilder, record: Record, passage_id: str, text: str) -> None:
    """Add a passage that was read; its id must be its own."""
    if passage_id in corpus.rows:
        raise InvalidInputError(f"{record.place} gives the id {passage_id!r} once more; give every passage its own.")
    corpus.add(text, passage_id)


def known_row(corpus: CorpusBuilder, passage_id: str, place: str) -> int:
    """The row of a passage that a label names."""
    if passage_id not in corpus.rows:
        raise InvalidInputError(
            f"{place} names the passage {passage_id!r} but the corpus of {len(corpus.rows):,} has none of that id; "
            "repair the label, or add the passage."
        )
    return corpus.rows[passage_id]
