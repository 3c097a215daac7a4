"""Repeats among the ids of many segments, compared with a set."""

import random

import pytest
import torch

from railsearch.errors import IdExistsError
from railsearch.index.numbering import SeenIds
from railsearch.index.segment import Segment
from railsearch.similarity import ItemParts


def segment_of(ids: set[int]) -> Segment:
    return Segment.build(torch.tensor(sorted(ids), dtype=torch.int64), ItemParts(torch.ones(len(ids), 1, 2), None))


@pytest.mark.parametrize("seed", range(10))
def test_repeats_are_found_as_a_set_finds_them(seed: int) -> None:
    choice = random.Random(seed)
    known = set(choice.sample(range(500), 20))
    seen = SeenIds([segment_of(known)], "use upsert to replace items")
    for _ in range(60):
        new = set(choice.sample(range(10_000), choice.choice([1, 3, 20])))
        repeated = sorted(new & known)
        if not repeated:
            assert set(seen.add(segment_of(new)).ids.tolist()) == new
            known |= new
            continue
        expected = rf"id {repeated[0]} is already in the index \({len(repeated)} of the given ids are\); use upsert"
        with pytest.raises(IdExistsError, match=expected):
            seen.add(segment_of(new))


def test_many_segments_make_few_lists() -> None:
    seen = SeenIds([], "give every item its own id")
    for first in range(0, 640, 10):
        seen.add(segment_of(set(range(first, first + 10))))
    assert [len(ids) for ids in seen._lists] == [640]
    seen.add(segment_of({5000}))
    assert [len(ids) for ids in seen._lists] == [640, 1]
    with pytest.raises(IdExistsError, match="id 639 is already"):
        seen.add(segment_of({639, 9000}))
