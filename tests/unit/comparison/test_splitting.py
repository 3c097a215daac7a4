"""Splits by query: no query in two parts, equal embeddings together, given parts as they are."""

import pytest
import torch

from railsearch.comparison.splitting import split_pairs
from railsearch.errors import InvalidInputError

QUERIES = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
PAIRS = torch.stack([torch.arange(250) % 100, torch.arange(250) % 37], dim=1)


def queries_of(pairs: torch.Tensor) -> set[int]:
    return set(pairs[:, 0].tolist())


def test_each_query_and_each_pair_is_in_one_part() -> None:
    split = split_pairs(PAIRS, QUERIES, num_items=37)
    parts = (split.train, split.validation, split.test)
    assert [len(queries_of(part)) for part in parts] == [70, 10, 20]
    assert sum(map(len, parts)) == 250
    assert set.union(*map(queries_of, parts)) == set(range(100))
    assert split.seen is None
    assert "70 queries to train on, 10 for validation and 20 for the test" in split.description


def test_the_seed_decides() -> None:
    splits = [split_pairs(PAIRS, QUERIES, num_items=37, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(splits[0].test, splits[1].test)
    assert queries_of(splits[0].test) != queries_of(splits[2].test)


def test_equal_queries_stay_together() -> None:
    queries = QUERIES[torch.arange(100) % 25].clone()
    queries[30, 0] += 0.0
    queries[0, 0], queries[25, 0], queries[50, 0], queries[75, 0] = 0.0, -0.0, 0.0, -0.0
    split = split_pairs(PAIRS, queries, num_items=37)
    parts = [{query % 25 for query in queries_of(part)} for part in (split.train, split.validation, split.test)]
    assert sum(map(len, parts)) == 25
    assert len(parts[2]) == 5


def test_given_parts_are_kept_and_seen_items_hidden() -> None:
    split = split_pairs([[0, 1], [1, 2]], QUERIES, num_items=37, validation_pairs=[[0, 3]], test_pairs=[[0, 5], [1, 3]])
    assert split.train.tolist() == [[0, 1], [1, 2]]
    assert split.test.tolist() == [[0, 5], [1, 3]]
    assert split.seen is not None
    assert split.seen.tolist() == [[0, 1], [1, 2], [0, 3]]


def test_a_given_test_and_drawn_validation() -> None:
    split = split_pairs(PAIRS, QUERIES, num_items=60, test_pairs=[[0, 50], [1, 51]])
    assert len(split.validation) + len(split.train) == 250
    assert len(queries_of(split.validation)) == 10
    assert split.test.tolist() == [[0, 50], [1, 51]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": PAIRS[:19]}, "pairs names 19 different queries but 20 are needed to hold some out"),
        ({"pairs": [[0, 40]]}, r"pairs\[0\] names item row 40 but there are 37"),
        ({"validation_pairs": [[0, 1]]}, "validation_pairs was given but test_pairs is None"),
        ({"test_pairs": [[100, 1]]}, r"test_pairs\[0\] names query row 100"),
        ({"validation_pairs": [[1, 1]], "test_pairs": [[0, 0], [1, 2]]}, "1 of 2 test_pairs are also in pairs"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_input(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        split_pairs(**({"pairs": PAIRS, "queries": QUERIES, "num_items": 37} | change))
