"""The model beside an index: it turns texts, histories and users into queries."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from railsearch.data import read_prepared
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings
from railsearch.index import ModelSource
from railsearch.loading import a_kind, load
from railsearch.recommender import Recommender
from railsearch.recommender.serving import encode_requests
from railsearch.server.searched import Searched
from railsearch.text_retriever import TextRetriever
from railsearch.text_retriever import folder as text_folder

INPUTS = ("embeddings", "texts", "histories", "users")


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Queries for an index."""

    queries: Tensor  # (B, D) or (B, Pq, d)
    user_ids: Tensor | None = None  # (B,)
    viewed: list[Tensor] | None = None
    """B times (n,) ids of items in the history of each query; None if there are no histories."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryModel:
    """A model whose queries an index takes."""

    source: ModelSource
    encoders: dict[str, Callable[[list[object]], Encoded]]
    """How to encode each kind of input besides embeddings."""
    history_column: str | None = None
    retriever: TextRetriever | None = None
    """The text model, which encodes passages too."""

    @property
    def kind(self) -> str:
        """The kind of model, in words."""
        return self.source.kind.removeprefix("railsearch.").replace("_", " ")


def read_models(paths: Sequence[Path], data: Path | None) -> list[QueryModel]:
    """Read folders of text retrievers and recommenders; `data` holds the histories of users, for recommenders."""
    found = [_read(path, data) for path in paths]
    if data is not None and all(model.history_column is None for model in found):
        raise InvalidInputError("--data holds histories of users, but no --model is a recommender; omit --data.")
    return found


def _read(path: Path, data: Path | None) -> QueryModel:
    loaded = load(path)
    if isinstance(loaded, TextRetriever):
        return _of_retriever(loaded)
    if isinstance(loaded, Recommender):
        return _of_recommender(path, data)
    raise InvalidInputError(
        f"{path} holds {a_kind(loaded)}; give the model of a text retriever or a recommender, or omit --model."
    )


def encode(index: Searched, model: QueryModel | None, kind: str, values: object) -> Encoded:
    """Return the queries of one request; raises InvalidInputError if they do not fit the index."""
    if kind == "embeddings":
        shape = index.similarity.query_shape
        return Encoded(as_embeddings(as_floats(values), name="embeddings", shape=shape))
    known = {} if model is None else model.encoders
    if kind not in known:
        accepted = ", ".join(["embeddings", *known])
        raise InvalidInputError(f"this index takes no {kind}: its model does not encode them; give {accepted}.")
    return known[kind](values)  # type: ignore[arg-type]


def as_floats(values: object) -> ArrayLike:
    """Return numbers of JSON as floats: it writes 1.0 as 1."""
    if not isinstance(values, list):
        return values  # type: ignore[return-value]
    check_no_text(values)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        return values  # as_embeddings reports what is wrong with it
    return array.astype(np.float64) if array.dtype.kind in "iu" else array


def check_no_text(values: list[object]) -> None:
    """Refuse text among numbers: numpy would give every value the room of the longest one, which may be gigabytes."""
    level = values
    while level:
        kinds = set(map(type, level))
        if str in kinds:
            raise InvalidInputError("embeddings holds text; give numbers.")
        if list not in kinds:
            return
        level = list(itertools.chain.from_iterable(own for own in level if type(own) is list))


def _of_retriever(retriever: TextRetriever) -> QueryModel:
    def encode_texts(texts: list[object]) -> Encoded:
        return Encoded(retriever.encode_queries(texts, show_progress=False))  # type: ignore[arg-type]

    source = ModelSource(text_folder.FORMAT.name, retriever.fingerprint)
    return QueryModel(source, {"texts": encode_texts}, retriever=retriever)


def _of_recommender(path: Path, data: Path | None) -> QueryModel:
    recommender = Recommender.load(path, interactions=None if data is None else read_prepared(data))

    def encode_histories(histories: list[object]) -> Encoded:
        found = encode_requests(recommender, histories=histories)  # type: ignore[arg-type]
        return Encoded(found.queries, found.user_ids, found.viewed)

    def encode_users(users: list[object]) -> Encoded:
        found = encode_requests(recommender, users=users)
        return Encoded(found.queries, found.user_ids, found.viewed)

    encoders = {"histories": encode_histories, **({} if data is None else {"users": encode_users})}
    return QueryModel(recommender.source, encoders, history_column="item")
