"""Passages on their way into an index: ids, texts and batches, without any language model."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from railsearch.data import QuestionPassages
from railsearch.errors import InvalidInputError
from railsearch.text_retriever import passages
from railsearch.text_retriever.passages import as_passages

DATA = QuestionPassages.from_pairs([("who?", "Ann."), ("when?", "Today.")])


@pytest.mark.parametrize(
    ("given", "ids", "texts"),
    [
        (["a", "b"], None, ["a", "b"]),
        (("a",), None, ["a"]),
        ({"p7": "a", "3": "b"}, ["p7", "3"], ["a", "b"]),
        ({7: "a", 3: "b"}, [7, 3], ["a", "b"]),
        ([], None, []),
    ],
)
def test_ids_and_texts(given: object, ids: list[str] | None, texts: list[str]) -> None:
    found = as_passages(given)
    assert (found.ids, list(found.texts)) == (ids, texts)


def test_passages_of_data_keep_their_ids() -> None:
    found = as_passages(DATA)
    assert (tuple(found.ids), found.texts) == (DATA.passage_ids, DATA.passages)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"p7": "a", 3: "b"}, "ids holds the string 'p7' and, in row 1, 3; give only strings, or only integers"),
        ({"": "a"}, "an empty string in row 0"),
        ({-1: "a"}, "ids must be 0 or greater"),
        (dataclasses.replace(DATA, passage_ids=("x", "x")), "ids holds 'x' more than once"),
    ],
)
def test_wrong_ids(given: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_passages(given)


@pytest.mark.parametrize("given", ["text", 5, None, {"a", "b"}])
def test_what_is_no_passages(given: object) -> None:
    with pytest.raises(InvalidInputError, match=f"passages is a {type(given).__name__}; give a list of texts"):
        as_passages(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"p7": "a", "p8": " "}, "passage 'p8' is empty; remove it"),
        ({7: "a", 8: None}, "passage 8 is None, of type NoneType"),
        (["a", ""], r"texts\[1\] is empty"),
        ({"p7": "half \ud83d"}, "passage 'p7' has half of a surrogate pair"),
    ],
)
def test_wrong_texts_are_named_by_their_ids(given: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_passages(given)


@pytest.mark.parametrize("given", [[], {}])
def test_no_passages_cannot_be_indexed(given: object) -> None:
    with pytest.raises(InvalidInputError, match="passages is empty; give at least 1 passage"):
        as_passages(given).encode(Lengths(), lambda _: None)


class Lengths:
    """A model that encodes a text as its length."""

    def locate_passages(
        self, texts: Sequence[str], on_texts: Callable[[float], None] | None = None
    ) -> tuple[Tensor, None]:
        assert on_texts is not None
        on_texts(len(texts))
        return torch.tensor([[float(len(text))] for text in texts]), None


def test_batches_bring_components_and_metadata_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "PASSAGES_PER_BATCH", 2)
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    done: list[float] = []
    given = as_passages({f"p{n}": text for n, text in enumerate(texts)})
    batches = list(given.encode(Lengths(), done.append))
    assert done == [2, 2, 1]
    assert torch.cat([batch.items for batch in batches]).flatten().tolist() == [1, 2, 3, 4, 5]
    assert [text for batch in batches for (text,) in batch.metadata.rows()] == texts
    assert [own for batch in batches for own in batch.ids] == [f"p{n}" for n in range(5)]
