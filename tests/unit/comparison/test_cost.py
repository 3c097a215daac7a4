"""Costs: times side by side, and bytes as they are in an index."""

import pytest
import torch

from railsearch.comparison import cost
from railsearch.comparison.cost import bytes_per_item, index_search, time_searches
from tests.support.similarities import KINDS, make_similarity


def test_times_are_medians_of_rounds_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0.0], []

    def searching(name: str, seconds: list[float]) -> cost.Search:
        left = iter(seconds)

        def search() -> None:
            order.append(name)
            clock[0] += next(left)

        return search

    monkeypatch.setattr(cost, "now", lambda: clock[0])
    slow = searching("slow", [9.0, 2.0, 3.0, 100.0, 2.5, 1.0])
    quick = searching("quick", [9.0, 0.1, 0.1, 0.1, 5.0, 0.1])
    assert time_searches([slow, None, quick], num_queries=10) == [pytest.approx(250.0), None, pytest.approx(10.0)]
    assert order == ["slow", "quick"] * 6


def test_short_searches_are_measured_often(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(cost, "now", lambda: 0.0)  # a stalled machine would end the rounds early
    time_searches([lambda: calls.append("search")], num_queries=1)
    assert len(calls) == 1 + cost.MOST_ROUNDS


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_those_of_the_parts(kind: str) -> None:
    similarity = make_similarity(kind)
    items = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
    parts = similarity.item_parts(items)
    total = parts.components.nbytes + (0 if parts.gate is None else parts.gate.nbytes)
    assert bytes_per_item(similarity, items) * 70 == total


def test_a_search_with_users() -> None:
    generator = torch.Generator().manual_seed(0)
    search = index_search(
        make_similarity("mixture-user"),
        torch.randn(7, 6, generator=generator),
        torch.randn(40, 6, generator=generator),
        torch.arange(40) % 5,
    )
    search()
