"""The answers of a text retriever to one question, in the form that documents of other libraries take."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import as_json_value
from railsearch.index import Strategy
from railsearch.text_retriever import TextRetriever
from railsearch.text_retriever.passages import TEXT_COLUMN

Value: TypeAlias = object
OWN_COLUMNS = frozenset({"query", "id", "score", "rank", TEXT_COLUMN})


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found."""

    id: str
    text: str
    score: float
    metadata: dict[str, Value]
    """JSON values: score, rank, the certificate (gap, is_exact), and the other columns of the index."""


def find_hits(
    retriever: TextRetriever, query: str, k: int, *, strategy: Strategy | None = None, allow: str | None = None
) -> list[Hit]:
    """Return the k best passages for a question, best first; fewer if the index has fewer.

    Args:
        retriever: a text retriever with an index.
        query: the question.
        k: the number of passages.
        strategy: how to search, as in `TextRetriever.search`.
        allow: a condition over the columns of the index, such as "year >= 2000".
    """
    if not isinstance(query, str):
        raise InvalidInputError(f"query is {query!r:.80}, a {type(query).__name__}; give a text.")
    index = check_retriever(retriever).index
    assert index is not None
    if not len(index):
        return []  # all passages were deleted
    result = retriever.search([query], min(k, len(index)), strategy, allow=allow, pad=True)
    certificate: dict[str, Value] = {"gap": as_json_value(float(result.gap[0])), "is_exact": bool(result.is_exact[0])}
    if result.expected_recall is not None:
        certificate["expected_recall"] = result.expected_recall
    hits = []
    for row in result.to_frame().iter_rows(named=True):
        columns = {name: as_json_value(value) for name, value in row.items() if name not in OWN_COLUMNS}
        own = {"id": row["id"], "score": row["score"], "rank": row["rank"], **certificate}
        hits.append(Hit(str(row["id"]), str(row.get(TEXT_COLUMN, "")), row["score"], {**columns, **own}))
    return hits


def open_retriever(model: str | Path, index: str | Path) -> TextRetriever:
    """Read a text retriever and open the index that it built."""
    retriever = TextRetriever.load(model)
    retriever.open_index(index)
    return retriever


def check_retriever(retriever: object) -> TextRetriever:
    """Refuse anything that is not a text retriever with an index."""
    if not isinstance(retriever, TextRetriever):
        raise InvalidInputError(f"retriever is a {type(retriever).__name__}; give a railsearch.TextRetriever.")
    if retriever.index is None:
        raise InvalidInputError("the retriever has no index; call build_index(passages), or open_index(path).")
    return retriever
