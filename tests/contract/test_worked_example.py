"""The worked example of the paper's appendix, items a to e, and small things that are clearest on it."""

import numpy as np
import pytest
import torch

from railsearch import Adaptive, Average, Combined, Index, PerComponent
from railsearch.errors import InvalidInputError, NotEnoughItemsError
from tests.support.search_worlds import EXACT
from tests.support.worked_example import TableSimilarity, worked_example_table


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
    with pytest.raises(NotEnoughItemsError, match="k is 2 but allow leaves only 1 of 5 items"):
        worked_example.search(query, 2, allow=[3], exclude=[[1]])  # allow alone leaves too few
    with pytest.raises(NotEnoughItemsError, match="exclude leaves query 0 only 1 of 5 items"):
        worked_example.search(query, 2, allow=[3, 4], exclude=[[4]])
