"""Questions that are held out of the training ones, and generated ones that join them."""

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
    collection: QuestionPassages, *, validation_share: float = 0.1, test_share: float = 0.1, seed: int = 0
) -> QuestionPassages:
    """Hold questions of the training set out, at random, where a collection has no split of its own.

    Only questions are held out: the corpus stays whole, so that a passage may be right for a training question and for
    a test question. The same question is never on two sides, since questions with the same text are one. Split before
    generated questions join: else they would be held out too.

    Args:
        collection: what to split.
        validation_share: of the training questions; 0 for none, or where it has validation questions already.
        test_share: of the training questions; 0 for none, or where it has test questions already.
        seed: which questions are drawn.

    >>> pairs = [(f"what is {n}?", f"{n} is a number") for n in range(10)]
    >>> split = split_questions(QuestionPassages.from_pairs(pairs), validation_share=0.2)
    >>> len(split.train), len(split.validation), len(split.test), len(split.passages)
    (7, 2, 1, 10)
    """
    shares = {
        "validation": check_share(validation_share, name="validation_share"),
        "test": check_share(test_share, name="test_share"),
    }
    num_questions = len(collection.train)
    there = {"validation": collection.validation, "test": collection.test}
    counts = {}
    for name, share in shares.items():
        own = there[name]
        counts[name] = round(share * num_questions)
        if share and own is not None:
            raise InvalidInputError(
                f"{collection.source} has {len(own)} {name} questions of its own; say {name}_share=0 to keep them."
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
    # Kept in the order of the file: only which questions are held out is random.
    test, validation, train = (rows.sort().values for rows in (drawn[:last_test], drawn[last_test:last], drawn[last:]))
    return dataclasses.replace(
        collection,
        train=collection.train.select(train),
        validation=collection.train.select(validation) if counts["validation"] else collection.validation,
        test=collection.train.select(test) if counts["test"] else collection.test,
    )


def add_generated(
    collection: QuestionPassages, path: str | Path, *, show_progress: bool | None = None
) -> QuestionPassages:
    """Add generated questions to those that are trained on.

    A question that is also one of the validation or test questions, in whatever case and spacing, is left out and
    counted in `num_leaks`: what is measured is not trained on. One that is a training question already, or was
    generated for several passages, is one question with several right passages.

    Args:
        collection: what to add to.
        path: JSON lines {"passage_id": ..., "question": ...} or {"id": ..., "queries": [...]}, also packed as .gz or
            .xz; or a .json list of [question, passage id], as NQ320K has.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    rows = {**dict(zip(collection.passage_ids, range(len(collection.passages)), strict=True)), **collection.other_ids}
    held_out = {
        _plain(text) for split in (collection.validation, collection.test) if split is not None for text in split.texts
    }
    train = QuestionsBuilder(collection.train)
    num_leaks = 0
    for place, passage_id, question in _generated(Path(path), show_progress):
        if passage_id not in rows:
            raise InvalidInputError(
                f"{place} is for the passage {passage_id!r}, which {collection.source} does not have; generate "
                "questions for the passages of this collection."
            )
        if _plain(question) in held_out:
            num_leaks += 1
        else:
            train.add(question, [rows[passage_id]])
    logger.info(
        "%s: %d generated questions were added, of which %d are not new; %d more are held-out ones and were left out",
        path, train.num_given, train.num_given - (len(train) - len(collection.train)), num_leaks,
    )  # fmt: skip
    return dataclasses.replace(
        collection, train=train.build(len(collection.passages)), num_leaks=collection.num_leaks + num_leaks
    )


def _generated(path: Path, show_progress: bool | None) -> Iterator[tuple[str, str, str]]:
    """Where each question is, the passage that it was generated for, and the question."""
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
