"""The worked example of the paper's appendix, items a to e, and small things that are clearest on it."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from railsearch import (
    Adaptive,
    Average,
    Combined,
    Index,
    InvalidInputError,
    NotEnoughItemsError,
    PerComponent,
)
from railsearch.similarity import Comparison, ItemParts, QueryParts
from railsearch.similarity.parts import all_pairs, best_pairs, own_pairs
from tests.support.search_worlds import EXACT


class TableSimilarity(nn.Module):
    """Component scores and gate weights as the paper's worked example states them: items only, one query."""

    num_query_components, num_item_components, component_dim = 1, 2, 1
    temperature, is_certifiable, takes_user_ids, values_per_pair = 1.0, True, False, 2
    query_shape, item_shape, config = (1,), (4,), {}

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        return QueryParts(queries[:, None], None)

    def item_parts(self, items: Tensor) -> ItemParts:
        return ItemParts(items[:, :2, None], items[:, 2:])

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        return self._weigh(all_pairs(query_parts.components, item_parts.components), item_parts.gate)

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        return self._weigh(own_pairs(query_parts.components, candidate_parts.components), candidate_parts.gate)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return best_pairs(query_parts.components, item_parts.components)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return self.compare(query_parts, item_parts).scores

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        return self.compare_candidates(query_parts, candidate_parts).scores

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        return torch.zeros(())

    def _weigh(self, component_scores: Tensor, gate: Tensor) -> Comparison:
        weights = gate.expand_as(component_scores)
        return Comparison((weights * component_scores).sum(-1), component_scores, weights)


def worked_example_table() -> Tensor:
    """Items a to e of the paper's appendix: two component scores and two gate weights each."""
    return torch.tensor(
        [
            [1.0, 1.0, 0.5, 0.5],
            [0.8, 0.0, 0.5, 0.5],
            [0.0, 0.8, 0.5, 0.5],
            [0.7, 0.0, 1.0, 0.0],
            [0.2, 0.2, 0.5, 0.5],
        ]
    )


@pytest.fixture
def worked_example() -> Index:
    return Index.build(TableSimilarity(), worked_example_table())


def test_worked_example_of_the_paper(worked_example: Index) -> None:
    query = torch.ones(1, 1)
    for strategy in EXACT:
        found = worked_example.search(query, 2, strategy)
        assert found.ids.tolist() == [[0, 3]]  # a and d
        torch.testing.assert_close(found.scores, torch.tensor([[1.0, 0.7]]))
        assert bool(found.is_exact.all())
    found = worked_example.search(query, 2, PerComponent(2))
    assert found.ids.tolist() == [[0, 1]]  # a, then b and c tie at 0.4
    assert float(found.kth_score) == pytest.approx(0.4)
    assert float(found.gap) == pytest.approx(0.3, abs=1e-5)  # and d's true score is just that much better
    assert found.num_scored.tolist() == [3]
    assert found.num_certified.tolist() == [1]
    # Item d is second by average once the others are out of the way: together nothing better is left than e.
    combined = worked_example.search(query, 2, Combined(2, 4))
    assert combined.ids.tolist() == [[0, 3]]
    assert bool(combined.is_exact.all())


def test_strategies_too_small_for_k(worked_example: Index) -> None:
    query = torch.ones(1, 1)
    with pytest.raises(InvalidInputError, match=r"k is 3 but Average\(2\) scores only 2 items; use Average\(3\)"):
        worked_example.search(query, 3, Average(2))
    with pytest.raises(InvalidInputError, match="k is 3 but max_scored is 2; ask for max_scored >= 3"):
        worked_example.search(query, 3, Adaptive(max_scored=2))


def test_allow_forms(worked_example: Index) -> None:
    query = torch.ones(1, 1)
    mask = torch.tensor([False, True, False, True, True])
    for allow in (
        mask,
        mask.numpy(),
        mask.tolist(),
        [1, 3, 4],
        {1, 3, 4},
        frozenset({1, 3, 4}),
        np.array([4, 3, 1, 999]),
    ):
        assert worked_example.search(query, 2, allow=allow).ids.tolist() == [[3, 1]]
    with pytest.raises(InvalidInputError, match=r"mask of shape \(2,\) but the index holds 5 items"):
        worked_example.search(query, 1, allow=[True, False])
    with pytest.raises(InvalidInputError, match="allow holds"):
        worked_example.search(query, 1, allow=[0.5])
    with pytest.raises(NotEnoughItemsError, match="k is 2 but allow leaves only 1 of 5 items"):
        worked_example.search(query, 2, allow=[3])
    with pytest.raises(NotEnoughItemsError, match="exclude leaves query 0 only 1 of 5 items"):
        worked_example.search(query, 2, allow=[3, 4], exclude=[[4]])
