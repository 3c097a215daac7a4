"""Explanations add up to the score that they explain."""

import pytest
import torch
from torch import Tensor

from railsearch import Index
from railsearch.errors import InvalidInputError
from railsearch.index import Precision
from tests.support.search_worlds import make_world


@pytest.mark.parametrize("precision", Precision)
def test_explanation_sums_to_the_score(precision: Precision) -> None:
    similarity, items, queries = make_world("sharp", 40, seed=2)
    index = Index.build(similarity, items, ids=torch.arange(40) + 100, precision=precision)
    result = index.search(queries, 5)
    for query in range(3):
        for item, score in zip(result.ids[query].tolist(), result.scores[query].tolist(), strict=True):
            explained = index.explain(queries[query], item)
            assert explained.item_id == item
            assert explained.score == score
            assert float(explained.contributions.sum()) == pytest.approx(explained.score, abs=1e-5)
            ranked = explained.ranked()
            values = [value for _, _, value in ranked]
            assert values == sorted(values, reverse=True)
            assert len({(i, j) for i, j, _ in ranked}) == 6
            i, j, value = ranked[0]
            assert value == pytest.approx(float(explained.gate_weights[i, j] * explained.component_scores[i, j]))


@pytest.mark.parametrize(
    ("query", "item", "message"),
    [
        (torch.zeros(6), 99, "item_id is 99, which is not among the 40 items"),
        (torch.zeros(6), 141, "item_id is 141, which is not among the 40 items"),
        (torch.zeros(6), "a", "item_id holds the string 'a' but the ids of this index are integers"),
        (torch.zeros(6), 2**70, "item_id is 1180591620717411303424; ask for item_id <= 9223372036854775807"),
        (torch.zeros(1, 6), 100, r"query has shape \(1, 1, 6\)"),
        (torch.full((6,), torch.nan), 100, "query has NaN"),
    ],
)
def test_bad_explanations(query: Tensor, item: int, message: str) -> None:
    similarity, items, _ = make_world("random", 40, seed=2)
    index = Index.build(similarity, items, ids=torch.arange(40) + 100)
    with pytest.raises(InvalidInputError, match=message):
        index.explain(query, item)
