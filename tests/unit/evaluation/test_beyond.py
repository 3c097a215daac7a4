"""Coverage, Gini index, novelty, popularity share and diversity, against plain loops."""

import itertools
import math
from collections import Counter

import pytest
import torch

from railsearch.errors import InvalidInputError
from railsearch.evaluation import coverage, diversity, gini, novelty, popularity_share

NUM_ITEMS = 30


@pytest.fixture
def recommended() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    lists = torch.stack([torch.randperm(NUM_ITEMS // 2, generator=generator)[:6] for _ in range(40)])  # (40, 6)
    lists[3, 4:] = -1  # two places without an item
    lists[7, 1:] = -1
    return lists


@pytest.fixture
def counts() -> torch.Tensor:
    return torch.randint(6, (NUM_ITEMS,), generator=torch.Generator().manual_seed(4))  # with zeros and ties


def items_of(recommended: torch.Tensor) -> list[list[int]]:
    return [[item for item in own if item >= 0] for own in recommended.tolist()]


def test_coverage_and_gini(recommended: torch.Tensor) -> None:
    flat = list(itertools.chain.from_iterable(items_of(recommended)))
    times = [Counter(flat)[item] for item in range(NUM_ITEMS)]
    assert coverage(recommended, NUM_ITEMS) == len(set(flat)) / NUM_ITEMS
    differences = sum(abs(one - other) for one in times for other in times)
    assert gini(recommended, NUM_ITEMS) == pytest.approx(differences / (2 * NUM_ITEMS * sum(times)))


def test_novelty(recommended: torch.Tensor, counts: torch.Tensor) -> None:
    total = int(counts.sum()) + NUM_ITEMS
    bits = [-math.log2((int(counts[item]) + 1) / total) for own in items_of(recommended) for item in own]
    assert novelty(recommended, counts) == pytest.approx(sum(bits) / len(bits), rel=1e-6)


@pytest.mark.parametrize("popular", [0.001, 0.1, 0.35, 1.0])
def test_popularity_share(recommended: torch.Tensor, counts: torch.Tensor, popular: float) -> None:
    order = sorted(range(NUM_ITEMS), key=lambda item: (-int(counts[item]), item))
    head = set(order[: max(1, math.floor(popular * NUM_ITEMS))])
    flat = list(itertools.chain.from_iterable(items_of(recommended)))
    expected = sum(item in head for item in flat) / len(flat)
    assert popularity_share(recommended, counts, popular=popular) == pytest.approx(expected)


def test_diversity(recommended: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = torch.randn(NUM_ITEMS, 8, generator=torch.Generator().manual_seed(5))
    embeddings[5] = 0  # an item without a direction is unlike every other
    expected = []
    for own in items_of(recommended):
        cosines = [
            float(torch.cosine_similarity(embeddings[one], embeddings[other], dim=0))
            for one, other in itertools.combinations(own, 2)
        ]
        if cosines:
            expected.append(1 - sum(cosines) / len(cosines))
    assert len(expected) == 39
    assert diversity(recommended, embeddings) == pytest.approx(sum(expected) / len(expected), rel=1e-5)
    monkeypatch.setattr("railsearch.evaluation.beyond.LISTS_PER_BLOCK", 7)
    assert diversity(recommended, embeddings) == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_lists_of_one_item_have_no_diversity() -> None:
    assert diversity([[0], [1]], torch.eye(2)) is None


def test_wrong_values() -> None:
    with pytest.raises(InvalidInputError, match="recommended holds row 9 but there are 4 items; give rows below 4"):
        coverage([[0, 9]], num_items=4)
    with pytest.raises(InvalidInputError, match="recommended holds no item"):
        gini([[-1, -1]], num_items=4)
    with pytest.raises(InvalidInputError, match="item_counts has shape"):
        novelty([[0]], item_counts=[[1, 2]])
    with pytest.raises(InvalidInputError, match=r"popular is 1\.5; give a share of the items above 0 and at most 1"):
        popularity_share([[0]], item_counts=[1, 2], popular=1.5)
    with pytest.raises(InvalidInputError, match=r"popular is 0\.0"):
        popularity_share([[0]], item_counts=[1, 2], popular=0.0)
