"""Questions and the passages that answer them: the data of a text retriever."""

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable, as_integers

logger = logging.getLogger(__name__)

QUESTION, PASSAGE = "question", "passage"
SHOWN_CHARACTERS = 40

PairsLike = TypeAliasType("PairsLike", Iterable[tuple[str, str]] | ArrowTable)
"""Questions, each with a passage that is right for it; or a table with these two columns."""


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Questions, and the passages that are right for each."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    pairs: Tensor  # (M, 2) question row, passage row; sorted, each pair once, at least one for every question
    hard_negatives: Tensor  # (H, 2) question row, passage row; sorted, each once, none of them a right pair
    grades: Tensor | None = None  # (M,) how right each pair is, 1 or more; None if all are 1

    def select(self, rows: ArrayLike) -> "Questions":
        """Return some of the questions, renumbered in the order of their rows (n,)."""
        chosen = as_integers(rows, name="rows").cpu()
        num_repeats = chosen.numel() - len(set(chosen.flatten().tolist()))
        if chosen.ndim != 1 or num_repeats:
            raise InvalidInputError(
                f"rows has shape {tuple(chosen.shape)} and {num_repeats} repeats; give a flat list of rows, each once."
            )
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(self):
            raise InvalidInputError(
                f"rows holds rows from {int(chosen.min())} to {int(chosen.max())} but there are {len(self)} questions; "
                "rows count from 0."
            )
        places = torch.full((len(self),), -1)  # (Q,)
        places[chosen] = torch.arange(len(chosen))
        return Questions(
            tuple(self.ids[row] for row in chosen.tolist()),
            tuple(self.texts[row] for row in chosen.tolist()),
            _renumbered(self.pairs, places),
            _renumbered(self.hard_negatives, places),
            None if self.grades is None else _renumbered(_graded(self.pairs, self.grades), places)[:, 2],
        )

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        negatives = f", {len(self.hard_negatives):,} hard negatives" if len(self.hard_negatives) else ""
        return f"Questions({len(self):,} with {len(self.pairs):,} right passages{negatives})"


@dataclass(frozen=True, slots=True, eq=False)
class QuestionPassages:
    """A corpus of passages, with questions for training, validation and test.

    Passages with the same text are one passage, under the id that came first, so that no passage is
    a negative of its own copy. In the same way, questions of one split with the same text are one question with several
    right passages. White space around a text is ignored.
    """

    passage_ids: tuple[str, ...]
    passages: tuple[str, ...]
    train: Questions
    validation: Questions | None
    test: Questions | None
    source: str
    num_duplicates: int = 0
    """Number of passages that were dropped because an earlier one has the same text."""
    other_ids: Mapping[str, int] = field(default_factory=dict)
    """Ids of these passages, and the row of the passage that replaces them."""
    num_leaks: int = 0
    """Number of generated questions that were dropped because they are held-out questions."""

    @classmethod
    def from_pairs(
        cls,
        pairs: PairsLike,
        *,
        passages: Sequence[str] | None = None,
        source: str = "pairs",
    ) -> "QuestionPassages":
        """Build training data from questions with their right passages; `split_questions` holds some out.

        Args:
            pairs: pairs of a question and a passage, or an Arrow table with these two columns.
            passages: more passages of the corpus, which answer no question.
            source: name of the pairs in messages.

        >>> data = QuestionPassages.from_pairs([("who?", "Ann."), ("who?", "Bob."), ("when?", "Ann.")])
        >>> data.passages, data.train.texts, data.train.pairs.tolist()
        (('Ann.', 'Bob.'), ('who?', 'when?'), [[0, 0], [0, 1], [1, 0]])
        """
        corpus, train = CorpusBuilder(), QuestionsBuilder()
        for number, (question, passage) in enumerate(_as_pairs(pairs, source)):
            text = checked_text(question, QUESTION, f"row {number} of {source}")
            train.add(text, [corpus.add(checked_text(passage, PASSAGE, f"row {number} of {source}"))])
        for number, passage in enumerate(passages or ()):
            corpus.add(checked_text(passage, PASSAGE, f"passages[{number}]"))
        return assemble(corpus, train=train, source=source)

    def __repr__(self) -> str:
        splits = {"to train": self.train, "for validation": self.validation, "for test": self.test}
        counts = ", ".join(f"{len(split):,} {name}" for name, split in splits.items() if split is not None)
        return f"QuestionPassages({len(self.passages):,} passages; questions: {counts}; {self.source})"


class CorpusBuilder:
    """Collector of passages; passages with the same text become one."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.rows: dict[str, int] = {}
        """Row of every given id, including those of merged passages."""
        self.num_given = 0
        self._rows_of_texts: dict[str, int] = {}

    def add(self, text: str, passage_id: str | None = None) -> int:
        """Add a text and return its row, which may be an earlier one; without an id, its id is its row."""
        self.num_given += 1
        row = self._rows_of_texts.setdefault(text, len(self.texts))
        if row == len(self.texts):
            self.texts.append(text)
            self.ids.append(str(row) if passage_id is None else passage_id)
        if passage_id is not None:
            self.rows[passage_id] = row
        return row


class QuestionsBuilder:
    """Collector of questions; questions with the same text become one."""

    def __init__(self, questions: Questions | None = None) -> None:
        self.num_given = 0
        self._ids = [] if questions is None else list(questions.ids)
        self._rows = {} if questions is None else {text: row for row, text in enumerate(questions.texts)}
        # Flat numbers, not tuples: the garbage collector would scan millions of tuples again and again.
        self._pairs = array("q")
        self._negatives = array("q")
        self._grades = array("q")
        self._earlier = questions

    def add(
        self,
        text: str,
        passages: Iterable[int],
        *,
        negatives: Iterable[int] = (),
        grades: Iterable[int] | None = None,
        question_id: str | None = None,
    ) -> None:
        """Add a question with the rows of its right passages, at least one, and of its hard negatives.

        A grade, 1 or more, says how right a passage is; by default, all are 1.
        """
        self.num_given += 1
        row = self._rows.setdefault(text, len(self._ids))
        if row == len(self._ids):
            self._ids.append(str(row) if question_id is None else question_id)
        num_before = len(self._pairs)
        for passage in passages:
            self._pairs.extend((row, passage))
        self._grades.extend([1] * ((len(self._pairs) - num_before) // 2) if grades is None else grades)
        for passage in negatives:
            self._negatives.extend((row, passage))

    def __len__(self) -> int:
        return len(self._ids)

    def texts(self) -> Iterable[str]:
        """Return the questions, in the order of their rows."""
        return self._rows.keys()

    def build(self, num_passages: int) -> Questions:
        """Return the questions over a corpus of `num_passages` passages."""
        right = _keys(self._pairs, num_passages)  # (M,)
        wrong = _keys(self._negatives, num_passages)  # (H,)
        if self._earlier is not None:
            right = torch.cat([right, _pair_keys(self._earlier.pairs, num_passages)])
            wrong = torch.cat([wrong, _pair_keys(self._earlier.hard_negatives, num_passages)])
        wrong = wrong[~torch.isin(wrong, right)]
        return Questions(
            tuple(self._ids),
            tuple(self._rows),
            _pairs_of(right, num_passages),
            _pairs_of(wrong, num_passages),
            self._best_grades(right),
        )

    def _best_grades(self, keys: Tensor) -> Tensor | None:
        """Return the best grade of each distinct key (M,), of this builder's pairs first; None if all are 1."""
        given = torch.from_numpy(np.array(self._grades, dtype=np.int64))  # (m,)
        earlier = None if self._earlier is None else self._earlier.grades
        if earlier is None and not bool((given != 1).any()):
            return None
        rest = torch.ones(len(keys) - len(given), dtype=torch.int64) if earlier is None else earlier
        distinct, places = torch.unique(keys, return_inverse=True)  # (M,), (m + e,)
        best = torch.zeros(len(distinct), dtype=torch.int64)  # (M,)
        return best.scatter_reduce_(0, places, torch.cat([given, rest]), "amax")


def assemble(
    corpus: CorpusBuilder,
    *,
    train: QuestionsBuilder,
    validation: QuestionsBuilder | None = None,
    test: QuestionsBuilder | None = None,
    source: str,
) -> QuestionPassages:
    """Build a data set from collected passages and questions, and log how many were merged."""
    if not corpus.texts:
        raise InvalidInputError(f"{source} has no passages; give at least one.")
    num_passages = len(corpus.texts)
    splits = {"train": train, "validation": validation, "test": test}
    for name, split in splits.items():
        if split is not None and not len(split) and (split is not train or validation is test is None):
            raise InvalidInputError(f"{source} has no {name} questions; give at least one.")
    num_duplicates = corpus.num_given - num_passages
    if num_duplicates:
        logger.info("%s: %d of %d passages repeat the text of another", source, num_duplicates, corpus.num_given)
    for name, split in splits.items():
        if split is not None and split.num_given > len(split):
            logger.info("%s: %d of %d %s questions repeat another", source, split.num_given - len(split),
                        split.num_given, name)  # fmt: skip
        if split is not None and split is not train:
            num_shared = len(set(split.texts()) & set(train.texts()))
            if num_shared:
                logger.warning(
                    "%s: %d of %d %s questions are also training questions", source, num_shared, len(split), name
                )
    kept = dict(zip(corpus.ids, range(num_passages), strict=True))
    return QuestionPassages(
        passage_ids=tuple(corpus.ids),
        passages=tuple(corpus.texts),
        train=train.build(num_passages),
        validation=None if validation is None else validation.build(num_passages),
        test=None if test is None else test.build(num_passages),
        source=source,
        num_duplicates=num_duplicates,
        other_ids={name: row for name, row in corpus.rows.items() if name not in kept},
    )


def checked_text(value: object, name: str, place: str) -> str:
    """Return a text without white space around it; refuse an empty one."""
    if not isinstance(value, str):
        raise InvalidInputError(f"the {name} in {place} is {str(value)[:SHOWN_CHARACTERS]!r}; give text.")
    text = value.strip()
    if not text:
        raise InvalidInputError(f"the {name} in {place} is empty; drop or repair it.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"the {name} in {place} holds half of a character, at {error.start}; repair it."
            ) from error
    return text


def _as_pairs(pairs: Iterable[object] | ArrowTable, source: str) -> Iterator[tuple[object, object]]:
    if hasattr(pairs, "__arrow_c_stream__"):
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        frame = pl.DataFrame(pairs)
        for name in (QUESTION, PASSAGE):
            if name not in frame.columns:
                raise InvalidInputError(
                    f"{source} has no column {name!r}; its columns are: {', '.join(frame.columns)}."
                )
        yield from frame.select(QUESTION, PASSAGE).iter_rows()
        return
    if isinstance(pairs, (str, Path)):
        raise InvalidInputError(f"{source} is a path or a text, {str(pairs)!r:.80}; read a file with read_passages.")
    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InvalidInputError(f"row {number} of {source} is not a pair; give a question and a passage.")
        yield pair[0], pair[1]


def _graded(pairs: Tensor, grades: Tensor) -> Tensor:
    return torch.cat([pairs, grades[:, None]], dim=1)  # (M, 3)


def _renumbered(pairs: Tensor, places: Tensor) -> Tensor:
    """Return the pairs of the questions that have a place, sorted by it; further columns stay beside them."""
    rows = places[pairs[:, 0]]  # (M,)
    kept = torch.cat([rows[:, None], pairs[:, 1:]], dim=1)[rows >= 0]  # (m, 2)
    return kept[kept[:, 0].argsort(stable=True)]  # passages of a question stay in order


def _keys(pairs: "array[int]", num_passages: int) -> Tensor:
    return _pair_keys(torch.from_numpy(np.array(pairs, dtype=np.int64)).view(-1, 2), num_passages)


def _pair_keys(pairs: Tensor, num_passages: int) -> Tensor:
    """Return pairs (M, 2) as one number each, in the same order."""
    return pairs[:, 0] * num_passages + pairs[:, 1]


def _pairs_of(keys: Tensor, num_passages: int) -> Tensor:
    """Return the pairs of such numbers, sorted and without repeats."""
    keys = torch.unique(keys)
    return torch.stack([keys // num_passages, keys % num_passages], dim=1)
