"""Passages on their way into an index: ids, texts and batches, without any language model."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from railsearch.data import QuestionPassages
from railsearch.errors import InvalidInputError
from railsearch.text_retriever import passages
from railsearch.text_retriever.passages import encoded_batches, ids_and_texts

DATA = QuestionPassages.from_pairs([("who?", "Ann."), ("when?", "Today.")])


@pytest.mark.parametrize(
    ("given", "ids", "texts"),
    [
        (["a", "b"], ["0", "1"], ["a", "b"]),
        (("a",), ["0"], ["a"]),
        ({"p7": "a", 3: "b"}, ["p7", "3"], ["a", "b"]),
        ([], [], []),
    ],
)
def test_ids_and_texts(given: object, ids: list[str], texts: list[str]) -> None:
    found = ids_and_texts(given)
    assert [list(each) for each in found] == [ids, texts]


def test_passages_of_data_keep_their_ids() -> None:
    assert ids_and_texts(DATA) == (DATA.passage_ids, DATA.passages)


@pytest.mark.parametrize("given", ["text", 5, None, {"a", "b"}])
def test_what_is_no_passages(given: object) -> None:
    with pytest.raises(InvalidInputError, match=f"passages is a {type(given).__name__}; give a list of texts"):
        ids_and_texts(given)


class Lengths:
    """A model that encodes a text as its length."""

    def encode_passages(self, texts: Sequence[str]) -> Tensor:
        return torch.tensor([[float(len(text))] for text in texts])


def test_batches_bring_components_and_metadata_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "PASSAGES_PER_BATCH", 2)
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    done: list[int] = []
    batches = list(encoded_batches(Lengths(), [f"p{n}" for n in range(5)], texts, done.append))
    assert done == [2, 2, 1]
    assert torch.cat([batch.items for batch in batches]).flatten().tolist() == [1, 2, 3, 4, 5]
    assert [row for batch in batches for row in batch.metadata.rows()] == [
        (f"p{n}", text) for n, text in enumerate(texts)
    ]
