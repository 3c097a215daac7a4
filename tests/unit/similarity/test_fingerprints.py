"""Fingerprints name content: any change of a weight changes them, however it is made."""

import copy

import pytest
import torch

from railsearch import Index
from railsearch.errors import FingerprintError
from railsearch.folders.similarity_folder import fingerprint
from railsearch.similarity.fingerprints import leave_unnamed
from tests.support.similarities import make_similarity

ITEMS = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))


def change_data(parameter: torch.nn.Parameter) -> None:
    parameter.data.mul_(1.5)


def change_memory(parameter: torch.nn.Parameter) -> None:
    parameter.detach().numpy()[...] += 1


def change_in_place(parameter: torch.nn.Parameter) -> None:
    with torch.no_grad():
        parameter.mul_(1.5)


@pytest.mark.parametrize("change", [change_data, change_memory, change_in_place], ids=lambda change: change.__name__)
def test_parts_name_the_weights_that_made_them(change) -> None:
    similarity = make_similarity("mixture")
    for parameter in similarity.parameters():
        before = similarity.item_parts(ITEMS).model
        assert before == similarity.query_parts(QUERIES).model == fingerprint(similarity)
        change(parameter)
        assert similarity.item_parts(ITEMS).model == similarity.query_parts(QUERIES).model == fingerprint(similarity)
        assert similarity.item_parts(ITEMS).model != before


@pytest.mark.parametrize("change", [change_data, change_memory], ids=lambda change: change.__name__)
def test_parts_of_changed_weights_are_refused(change) -> None:
    similarity = make_similarity("mixture")
    index = Index.build(similarity, ITEMS)
    expected = index.search(QUERIES, 3)
    change(next(iter(similarity.parameters())))
    with pytest.raises(FingerprintError, match="query parts were computed by model"):
        index.search(similarity.query_parts(QUERIES), 3)
    with pytest.raises(FingerprintError, match="item parts were computed by model"):
        index.add(similarity.item_parts(ITEMS), ids=range(20, 29))
    assert torch.equal(index.search(QUERIES, 3).ids, expected.ids)


def test_changes_to_the_similarity_that_an_index_gives_do_not_reach_it() -> None:
    index = Index.build(make_similarity("mixture"), ITEMS)
    expected = index.search(QUERIES, 3)
    assert index.similarity is index.similarity
    parts = index.similarity.query_parts(QUERIES)
    assert parts.model == index.fingerprint
    assert torch.equal(index.search(parts, 3).ids, expected.ids)
    change_data(next(iter(index.similarity.parameters())))
    with pytest.raises(FingerprintError, match="query parts were computed by model"):
        index.search(index.similarity.query_parts(QUERIES), 3)
    found = index.search(QUERIES, 3)
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.scores, expected.scores)


def test_a_private_copy_is_not_named() -> None:
    similarity = make_similarity("mixture")
    leave_unnamed(similarity)
    assert similarity.query_parts(QUERIES).model is None
    assert copy.deepcopy(similarity).query_parts(QUERIES).model == fingerprint(similarity)
