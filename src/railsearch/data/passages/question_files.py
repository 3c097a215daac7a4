"""Reader of passages and questions in two files: ids, texts, and the ids of right passages."""

from pathlib import Path

from railsearch.data.passages.json_lines import Record
from railsearch.data.passages.layouts import add_passage, known_row
from railsearch.data.passages.passages import CorpusBuilder, QuestionPassages, QuestionsBuilder, assemble
from railsearch.data.passages.records import read_records
from railsearch.foundation.errors import InvalidInputError

TEXT_FIELDS = ("question", "q", "text")
RIGHT_FIELDS = ("passage_ids", "passage_id", "pos")
SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation", "test": "test"}


def read_question_files(
    passages: str | Path, questions: str | Path, *, show_progress: bool | None = None
) -> QuestionPassages:
    """Read a corpus and the questions about it, as JSON lines (also packed: .jsonl.gz, .jsonl.xz) or tables.

    Args:
        passages: records with an id (`id` or `_id`), a text, and optionally a title.
        questions: records with a text (`question`, `q` or `text`), the ids of the right passages (`passage_ids` or
            `pos`: a list; `passage_id`: one), and optionally a `split`: train, validation or test. Without splits, all
            questions are for training; `split_questions` holds some out.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    corpus = CorpusBuilder()
    for record in read_records(passages, show_progress=show_progress):
        add_passage(corpus, record, record.id(_field(record, ("id", "_id"))), record.titled_text())
    splits = {name: QuestionsBuilder() for name in ("train", "validation", "test")}
    for record in read_records(questions, show_progress=show_progress):
        right = _right_ids(record)
        if not right:
            raise InvalidInputError(f"{record.place} names no right passage; give at least one.")
        rows = [known_row(corpus, passage_id, record.place) for passage_id in right]
        splits[_split(record)].add(record.text(_field(record, TEXT_FIELDS)), rows)
    return assemble(
        corpus,
        train=splits["train"],
        validation=splits["validation"] if len(splits["validation"]) else None,
        test=splits["test"] if len(splits["test"]) else None,
        source=str(questions),
    )


def _right_ids(record: Record) -> list[str]:
    name = _field(record, RIGHT_FIELDS)
    return record.ids(name) if isinstance(record.fields[name], list) else [record.id(name)]


def _split(record: Record) -> str:
    given = record.fields.get("split", "train")
    if not isinstance(given, str) or given not in SPLITS:
        raise InvalidInputError(f"the split in {record.place} is {given!r}; choose from: {', '.join(SPLITS)}.")
    return SPLITS[given]


def _field(record: Record, names: tuple[str, ...]) -> str:
    """Return the first of these names that the record has."""
    for name in names:
        if name in record.fields:
            return name
    raise InvalidInputError(
        f"{record.place} has none of the fields {', '.join(names)}; its fields are: {', '.join(record.fields)}."
    )
