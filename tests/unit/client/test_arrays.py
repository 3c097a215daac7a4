"""Arrays of any kind on the wire, and damaged answers."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from railsearch.client.arrays import as_floats, as_ids, decode, encode, size_of
from railsearch.client.problems import Reply
from railsearch.client.reading import result
from railsearch.errors import InvalidInputError, ServerError

VALUES = [[0.5, -1.0], [2.0, 0.25]]
ANSWER = {
    "index": {"name": "movies", "version": 3, "fingerprint": "f"},
    "strategy": "BruteForce",
    "expected_recall": None,
    "milliseconds": {"queue": 0.1, "search": 1},
    "keys": None,
    "fields": None,
}


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        tuple(map(tuple, VALUES)),
        np.array(VALUES),
        np.array(VALUES, dtype="f2"),
        np.array(VALUES, dtype=">f4"),
        np.asfortranarray(np.array(VALUES, dtype="f4")),
        np.array([[0.5, -1.0], [9, 9], [2.0, 0.25]], dtype="f4")[::2],
        torch.tensor(VALUES),
        torch.tensor(VALUES, requires_grad=True),
        torch.tensor(VALUES, dtype=torch.bfloat16),
        torch.tensor(VALUES).T.contiguous().T,
    ],
    ids=range(11),
)
def test_any_array_is_accepted(values: object) -> None:
    array = as_floats(values, name="embeddings")  # type: ignore[arg-type]
    assert array.flags.c_contiguous
    tensors = load(encode({"embeddings": array}, {"k": 3}))
    assert tensors["embeddings"].double().tolist() == VALUES


@pytest.mark.parametrize("values", [[[1.0], [1.0, 2.0]], [["a"]], [[1j]], [[None]], np.ma.masked_array([1.0], [True])])
def test_other_values_are_refused(values: object) -> None:
    with pytest.raises(InvalidInputError, match="embeddings"):
        as_floats(values, name="embeddings")  # type: ignore[arg-type]


def test_ids_are_integers_or_strings() -> None:
    assert as_ids(np.array([1, 2]), name="ids") == [1, 2]
    assert as_ids(torch.tensor([1, 2]), name="ids") == [1, 2]  # type: ignore[arg-type]
    assert as_ids(("a", "b"), name="ids") == ["a", "b"]
    assert as_ids([], name="ids") == []
    for wrong in ("ab", [1, "a"], [1.5], [True], [2**63], 3):
        with pytest.raises(InvalidInputError, match="ids"):
            as_ids(wrong, name="ids")  # type: ignore[arg-type]


def test_sizes_are_estimated() -> None:
    assert size_of(np.zeros((10, 4), dtype="f4")) == 160
    assert size_of([[0.0] * 4] * 10) == 320
    assert size_of(["abcdefghij"] * 10) == 100
    assert size_of(None) == 8


def answer(**changes: torch.Tensor | None) -> bytes:
    tensors = {
        "ids": torch.tensor([[7, 3]]),
        "scores": torch.tensor([[1.0, 0.5]]),
        "ceiling": torch.tensor([0.75]),
        "num_scored": torch.tensor([4]),
    } | changes
    return save({name: value for name, value in tensors.items() if value is not None}, {"answer": json.dumps(ANSWER)})


def read(body: bytes) -> object:
    return result(Reply(200, {"content-type": "application/x-safetensors"}, body), "http://server")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff" * 100,
        answer()[:-1],
        answer()[:40],
        save({"ids": torch.tensor([[1]])}),
        save({"ids": torch.tensor([[1]])}, {"answer": "[]"}),
        answer(scores=torch.tensor([[1.0]])),
        answer(ids=torch.tensor([[1.0, 2.0]])),
        answer(ids=torch.zeros(1, 0, dtype=torch.int64), scores=torch.zeros(1, 0)),
        answer(ceiling=torch.tensor([1.0, 2.0])),
        answer(num_scored=None),
        answer(component_scores=torch.zeros(1, 1, 2, 2)),
        answer(component_scores=torch.zeros(2, 1, 2, 2), gate_weights=torch.zeros(2, 1, 2, 2)),
    ],
    ids=range(13),
)
def test_a_damaged_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(ServerError, match="answer"):
        read(body)


def test_members_of_the_answer_are_checked() -> None:
    arrays, found = decode(answer(), member="answer")
    assert found == ANSWER
    assert arrays["ids"].tolist() == [[7, 3]]
    for name in ("index", "milliseconds"):
        damaged = save(load(answer()), {"answer": json.dumps({**ANSWER, name: 3})})
        with pytest.raises(ServerError, match=name):
            read(damaged)
    for name, value in (("keys", [["a"]]), ("fields", [[{}, {}], []])):
        damaged = save(load(answer()), {"answer": json.dumps({**ANSWER, name: value})})
        with pytest.raises(ServerError, match=name):
            read(damaged)
