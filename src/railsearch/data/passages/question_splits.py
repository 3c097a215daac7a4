"""Splits of questions into training, validation and test, and generated training questions."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import torch

from railsearch.data.passages.json_lines import question_entry, read_json_lines, read_json_list
from railsearch.data.passages.passages import QuestionPassages, QuestionsBuilder
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_seed, check_share

logger = logging.getLogger(__name__)


def split_questions(
    data: QuestionPassages, *, validation_share: float = 0.1, test_share: float = 0.1, seed: int = 0
) -> QuestionPassages:
    """Hold out random training questions, for a data set without a split.

    Only questions are held out. The corpus stays complete, so a passage may be right for a training question and for a
    test question. Questions with the same text are one question, so no question is in two splits. Split before you add
    generated questions; otherwise they could be held out too.

    Args:
        data: the data set to split.
        validation_share: share of the training questions; 0 for none, or if there are validation questions already.
        test_share: share of the training questions; 0 for none, or if there are test questions already.
        seed: seed of the draw.

    >>> pairs = [(f"what is {n}?", f"{n} is a number") for n in range(10)]
    >>> split = split_questions(QuestionPassages.from_pairs(pairs), validation_share=0.2)
    >>> len(split.train), len(split.validation), len(split.test), len(split.passages)
    (7, 2, 1, 10)
    """
    shares = {
        "validation": check_share(validation_share, name="validation_share"),
        "test": check_share(test_share, name="test_share"),
    }
    num_questions = len(data.train)
    there = {"validation": data.validation, "test": data.test}
    counts = {}
    for name, share in shares.items():
        own = there[name]
        counts[name] = round(share * num_questions)
        if share and own is not None:
            raise InvalidInputError(
                f"{data.source} already has {len(own)} {name} questions; pass {name}_share=0 to keep them."
            )
        if share and not counts[name]:
            raise InvalidInputError(
                f"{name}_share is {share} but {share} of {num_questions} questions is none; ask for a larger share."
            )
    if sum(counts.values()) >= num_questions:
        raise InvalidInputError(
            f"{counts['validation']} and {counts['test']} of {num_questions} questions would be held out, and none "
            "left to train on; ask for smaller shares."
        )
    generator = torch.Generator().manual_seed(check_seed(seed))
    drawn = torch.randperm(num_questions, generator=generator)  # (Q,)
    last_test, last = counts["test"], counts["test"] + counts["validation"]
    # The order of the file is kept; only the choice of held-out questions is random.
    test, validation, train = (rows.sort().values for rows in (drawn[:last_test], drawn[last_test:last], drawn[last:]))
    return dataclasses.replace(
        data,
        train=data.train.select(train),
        validation=data.train.select(validation) if counts["validation"] else data.validation,
        test=data.train.select(test) if counts["test"] else data.test,
    )


def add_generated(data: QuestionPassages, path: str | Path, *, show_progress: bool | None = None) -> QuestionPassages:
    """Add generated questions to the training questions.

    A question that is also a validation or test question, in any case and spacing, is dropped and counted in
    `num_leaks`. A question that is already a training question, or that was generated for several passages, becomes
    one question with several right passages.

    Args:
        data: the data set to add to.
        path: JSON lines {"passage_id": ..., "question": ...} or {"id": ..., "queries": [...]}, also packed as .gz or
            .xz; or a .json list of [question, passage id], as NQ320K has.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    rows = {**dict(zip(data.passage_ids, range(len(data.passages)), strict=True)), **data.other_ids}
    held_out = {_plain(text) for split in (data.validation, data.test) if split is not None for text in split.texts}
    train = QuestionsBuilder(data.train)
    num_leaks = 0
    for place, passage_id, question in _generated(Path(path), show_progress):
        if passage_id not in rows:
            raise InvalidInputError(
                f"{place} is for the passage {passage_id!r}, which {data.source} does not have; generate "
                "questions for the passages of this data set."
            )
        if _plain(question) in held_out:
            num_leaks += 1
        else:
            train.add(question, [rows[passage_id]])
    logger.info(
        "%s: %d generated questions were added, of which %d are not new; %d more are held out and were dropped",
        path, train.num_given, train.num_given - (len(train) - len(data.train)), num_leaks,
    )  # fmt: skip
    return dataclasses.replace(data, train=train.build(len(data.passages)), num_leaks=data.num_leaks + num_leaks)


def _generated(path: Path, show_progress: bool | None) -> Iterator[tuple[str, str, str]]:
    """Yield the place of each question, the id of its passage, and the question."""
    if path.suffix == ".json":
        file = str(path)
        for number, value in enumerate(read_json_list(file, show_progress=show_progress)):
            place = f"entry {number} of {file}"
            text, passages = question_entry(value, place)
            yield from ((place, passage, text) for passage in passages)
        return
    for record in read_json_lines(path, show_progress=show_progress):
        if "queries" in record.fields:
            yield from ((record.place, record.id("id"), text) for text in record.texts("queries"))
        else:
            yield record.place, record.id("passage_id"), record.text("question")


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
