"""BM25, a baseline that matches words and learns nothing: the ranks of the right passages."""

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from railsearch.data import QuestionPassages, Questions
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.extras import missing_extra
from railsearch.foundation.inputs import check_positive, check_share
from railsearch.foundation.progress import counting


def rank_with_bm25(
    data: QuestionPassages,
    questions: Questions,
    *,
    k1: float = 1.5,
    b: float = 0.75,
    show_progress: bool | None = None,
) -> Tensor:
    """Return the rank (Q,) of each question's best-placed right passage among all passages; the first rank is 1.

    This is Lucene's variant of BM25: words of at least two characters, in lower case and not stemmed, without 33
    English stop words; scores in fp64. Ties are ordered as in search, smaller row first. Memory holds the word counts
    and the scores of one question.

    Args:
        data: the data set with the passages.
        questions: questions about these passages.
        k1: saturation; the larger, the more a repeated word counts.
        b: penalty of long passages, from 0 (none) to 1.
        show_progress: True draws a progress bar, False shows nothing; by default, a bar on a terminal, and an
            occasional line elsewhere.
    """
    check_positive(k1, name="k1")
    if b != 1:
        check_share(b, name="b")
    if len(questions.pairs) and int(questions.pairs[:, 1].max()) >= len(data.passages):
        raise InvalidInputError(
            f"the questions name passage row {int(questions.pairs[:, 1].max())} but {data.source} has "
            f"{len(data.passages)} passages; give questions of this data set."
        )
    bm25s = _import_bm25s()
    words = _words(bm25s, data.passages)
    if not any(words):
        raise InvalidInputError(f"no passage of {data.source} has a word to match; give passages with words.")
    index = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64")
    index.index(words, show_progress=False)
    ranks = torch.empty(len(questions), dtype=torch.int64)  # (Q,)
    owners, rows = questions.pairs.numpy().T  # (M,) each
    starts = np.searchsorted(owners, np.arange(len(questions) + 1))  # (Q + 1,)
    with counting("ranking with BM25", len(questions), is_shown=show_progress) as count:
        for question, asked in enumerate(_words(bm25s, questions.texts)):
            scores = index.get_scores_from_ids(index.get_tokens_ids(asked))  # (N,)
            own = rows[starts[question] : starts[question + 1]]
            best = own[np.argmax(scores[own])]  # argmax returns the smallest row of a tie
            is_ahead = (scores > scores[best]) | ((scores == scores[best]) & (np.arange(len(scores)) < best))  # (N,)
            ranks[question] = 1 + int(is_ahead.sum())
            count(1)
    return ranks


def _words(bm25s: ModuleType, texts: tuple[str, ...]) -> list[list[str]]:
    words: list[list[str]] = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return words


def _import_bm25s() -> ModuleType:
    try:
        import bm25s  # type: ignore[import-untyped]  # noqa: PLC0415  (optional: imported only if it is used)
    except ImportError as error:
        raise missing_extra("bm25s", "text") from error
    return bm25s  # type: ignore[no-any-return]
