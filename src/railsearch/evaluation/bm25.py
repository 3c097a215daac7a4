"""BM25, the baseline that matches words: where the right passages stand when nothing is learned."""

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from railsearch.data import QuestionPassages, Questions
from railsearch.foundation.errors import InvalidInputError, MissingExtraError
from railsearch.foundation.inputs import check_positive, check_share
from railsearch.foundation.progress import counting


def rank_with_bm25(
    collection: QuestionPassages,
    questions: Questions,
    *,
    k1: float = 1.5,
    b: float = 0.75,
    show_progress: bool | None = None,
) -> Tensor:
    """Rank (Q,) of each question's best-placed right passage among all passages; the best has rank 1.

    Lucene's variant of BM25: words of two characters or more, in lower case and not stemmed, without 33 English stop
    words; scores in fp64. Ties stand as in search, smaller row first: a right passage that shares no word with its
    question comes after all that do. Memory is that of the word counts and of one question's scores.

    Args:
        collection: the passages.
        questions: over these passages.
        k1: how soon more of the same word stops to count.
        b: how much long passages are held back; 0 is not at all.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    check_positive(k1, name="k1")
    if b != 1:
        check_share(b, name="b")
    if len(questions.pairs) and int(questions.pairs[:, 1].max()) >= len(collection.passages):
        raise InvalidInputError(
            f"the questions name passage row {int(questions.pairs[:, 1].max())} but {collection.source} has "
            f"{len(collection.passages)} passages; give questions of this collection."
        )
    bm25s = _import_bm25s()
    words = _words(bm25s, collection.passages)
    if not any(words):
        raise InvalidInputError(f"no passage of {collection.source} has a word to match; BM25 needs some.")
    index = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64")
    index.index(words, show_progress=False)
    ranks = torch.empty(len(questions), dtype=torch.int64)  # (Q,)
    owners, rows = questions.pairs.numpy().T  # (M,) each
    starts = np.searchsorted(owners, np.arange(len(questions) + 1))  # (Q + 1,)
    with counting("ranking with BM25", len(questions), is_shown=show_progress) as count:
        for question, asked in enumerate(_words(bm25s, questions.texts)):
            scores = index.get_scores_from_ids(index.get_tokens_ids(asked))  # (N,)
            own = rows[starts[question] : starts[question + 1]]
            best = own[np.argmax(scores[own])]  # of equal ones the first, which is the smallest row
            is_ahead = (scores > scores[best]) | ((scores == scores[best]) & (np.arange(len(scores)) < best))  # (N,)
            ranks[question] = 1 + int(is_ahead.sum())
            count(1)
    return ranks


def _words(bm25s: ModuleType, texts: tuple[str, ...]) -> list[list[str]]:
    words: list[list[str]] = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return words


def _import_bm25s() -> ModuleType:
    try:
        import bm25s  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra: only who asks for it needs it)
    except ImportError as error:
        raise MissingExtraError("bm25s is not installed; pip install 'railsearch[text]'.") from error
    return bm25s  # type: ignore[no-any-return]
