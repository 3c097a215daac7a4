"""Ranks of the right items of queries, against a plain sort of all scores."""

import pytest
import torch

from railsearch import DotProduct
from railsearch.models import rank_pairs
from tests.support.similarities import make_similarity


def naive_ranks(scores: torch.Tensor, pairs: list[list[int]], seen: list[list[int]]) -> dict[int, int]:
    """Sort the items of each query, drop those that were seen, and find the first right one."""
    ranks = {}
    for query in sorted({query for query, _ in pairs}):
        right = {item for own, item in pairs if own == query}
        hidden = {item for own, item in seen if own == query} - right
        order = sorted(range(scores.shape[1]), key=lambda item: (-float(scores[query, item]), item))
        ranks[query] = 1 + [item for item in order if item not in hidden].index(
            next(item for item in order if item in right)
        )
    return ranks


@pytest.mark.parametrize("seed", range(5))
def test_the_best_placed_right_item_counts(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-1, 2, (70, 6), generator=generator).float()  # whole numbers: many exact ties
    items = torch.randint(-1, 2, (30, 6), generator=generator).float()
    similarity = DotProduct(dim=6)
    pairs = torch.stack(
        [torch.randint(70, (90,), generator=generator), torch.randint(30, (90,), generator=generator)], dim=1
    )
    seen = torch.stack(
        [torch.randint(70, (200,), generator=generator), torch.randint(30, (200,), generator=generator)], dim=1
    )
    is_right = (pairs[:, None] == seen).all(dim=2).any(dim=0)
    seen = seen[~is_right]  # the ranks of a right item that was also seen are tested elsewhere
    ranks = rank_pairs(similarity, queries, items, pairs, seen=seen)
    expected = naive_ranks(similarity(queries, items), pairs.tolist(), seen.tolist())
    assert ranks.tolist() == list(expected.values())


def test_a_right_item_counts_although_it_was_seen() -> None:
    similarity = DotProduct(dim=1)
    items = torch.tensor([[3.0], [2.0], [1.0]])
    seen = torch.tensor([[0, 0], [0, 1]])
    assert rank_pairs(similarity, torch.ones(1, 1), items, torch.tensor([[0, 1]]), seen=seen).tolist() == [1]


def test_the_order_of_the_pairs_does_not_matter() -> None:
    similarity = make_similarity("mixture")
    generator = torch.Generator().manual_seed(3)
    queries, items = torch.randn(40, 6, generator=generator), torch.randn(50, 6, generator=generator)
    pairs = torch.stack([torch.arange(100) % 40, torch.arange(100) % 50], dim=1)
    mixed = pairs[torch.randperm(100, generator=generator)]
    ranks = rank_pairs(similarity, queries, items, pairs)
    assert torch.equal(ranks, rank_pairs(similarity, queries, items, mixed))
