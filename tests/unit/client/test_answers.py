"""A result of a server has the names and values of `SearchResult`."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from railsearch import SearchResult
from railsearch.client import ServedExplanation, ServedResult
from railsearch.errors import InvalidInputError
from railsearch.foundation.results import Explanation

NUMBERS = st.sampled_from([-math.inf, -1.0, -0.5, 0.0, 0.5, 1.0])


def names_of(kind: type) -> set[str]:
    own = {name for name in vars(kind) if not name.startswith("_")}
    return own | {field.name for field in dataclasses.fields(kind)}


def make(scores: list[list[float]], ceiling: list[float], **more: object) -> ServedResult:
    ids = [[7 + place if score > -math.inf else -1 for place, score in enumerate(row)] for row in scores]
    return ServedResult(
        ids=np.array(ids, dtype=np.int64),
        scores=np.array(scores, dtype=np.float32),
        ceiling=np.array(ceiling, dtype=np.float32),
        num_scored=np.full(len(ids), 4),
        **more,  # type: ignore[arg-type]
    )


def test_the_names_are_those_of_the_library() -> None:
    by_the_server = {"lookup", "look_up", "locate", "questions"}  # its answer has the fields of each hit
    assert names_of(SearchResult) - by_the_server <= names_of(ServedResult)
    assert names_of(Explanation) <= names_of(ServedExplanation)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.one_of(NUMBERS, st.just(math.inf))), min_size=1, max_size=4))
def test_the_certificate_is_that_of_the_library(rows: list[tuple[float, float, float, float]]) -> None:
    served = make([sorted(row[:3], reverse=True) for row in rows], [row[3] for row in rows])
    result = served.to_result()
    for name in ("kth_score", "gap", "is_exact", "num_certified", "ids", "scores"):
        assert getattr(served, name).tolist() == getattr(result, name).tolist(), name
    scores, ids = served
    assert scores is served.scores
    assert ids is served.ids
    assert served.to_frame().equals(result.to_frame())


def test_string_ids_and_fields_are_in_the_table() -> None:
    served = make(
        [[1.0, -math.inf]],
        [0.5],
        string_ids=[["a", None]],
        fields=[[{"id": "a", "title": "Alien", "year": 1979}, None]],
    )
    assert served.keys == [["a", None]]
    assert served.to_frame().to_dicts() == [
        {"query": 0, "rank": 1, "id": "a", "score": 1.0, "title": "Alien", "year": 1979}
    ]
    with pytest.raises(InvalidInputError, match=r"result\.ids"):
        make([[1.0]], [0.0]).keys  # noqa: B018


def test_explanations_agree_with_the_library() -> None:
    scores, weights = torch.rand(3, 2), torch.rand(3, 2)
    own = ServedExplanation(7, 0.5, scores.numpy(), weights.numpy())
    other = Explanation(7, 0.5, scores, weights)
    assert own.ranked() == other.ranked()
    assert own.contributions.tolist() == other.contributions.tolist()
