"""Popularity against plain loops: counts, recency, leaks, and users without a history."""

import polars as pl
import pytest
import torch

from railsearch.baselines import Popularity
from railsearch.data import Interactions, leave_last_out
from railsearch.errors import InvalidInputError
from railsearch.foundation.metrics import summarize
from tests.support.naive_baselines import naive_ranks_by, train_histories
from tests.support.naive_ranking import events_of
from tests.support.training_worlds import random_walks

WORLD = random_walks(num_users=30, num_items=25, seed=3)
SPLIT = leave_last_out(WORLD)


def test_counts_and_ranks_are_those_of_a_plain_loop() -> None:
    popularity = Popularity.fit(SPLIT)
    counts = [0.0] * 25
    for items in train_histories(SPLIT):
        for item in items:
            counts[item] += 1
    assert popularity.item_scores.tolist() == counts
    ranks = naive_ranks_by([counts] * 30, WORLD, SPLIT.test)
    assert popularity.rank_held_out(WORLD, SPLIT.test).tolist() == ranks
    evaluation = popularity.evaluate(WORLD)
    assert evaluation.protocol == SPLIT.protocol
    assert evaluation.metrics["MRR"] == summarize(ranks)["MRR"]
    assert torch.equal(popularity.scores([[1], [2, 3]]), torch.tensor([counts] * 2, dtype=torch.float64))


def test_a_half_life_halves_old_events() -> None:
    popularity = Popularity.fit(SPLIT, half_life_days=2.0)
    latest = max(events_of(WORLD, user)[1][len(own) - 1] for user, own in enumerate(train_histories(SPLIT)))
    scores = [0.0] * 25
    for user, items in enumerate(train_histories(SPLIT)):
        for item, time in zip(items, events_of(WORLD, user)[1], strict=False):
            scores[item] += 0.5 ** ((latest - time) / 86_400 / 2.0)
    assert popularity.item_scores.tolist() == pytest.approx(scores)


@pytest.mark.parametrize(("share", "num_kept"), [(0.01, 1), (0.5, None), (1.0, None)])
def test_a_share_keeps_the_last_events_of_each_user(share: float, num_kept: int | None) -> None:
    popularity = Popularity.fit(SPLIT, recent_share=share)
    counts = [0.0] * 25
    for items in train_histories(SPLIT):
        kept = num_kept if num_kept is not None else -(-len(items) * share // 1)
        for item in items[-int(kept) :]:
            counts[item] += 1
    assert popularity.item_scores.tolist() == counts


def test_held_out_events_are_not_read() -> None:
    items = WORLD.items.clone()
    held_out = torch.cat([SPLIT.test.history_ends, SPLIT.validation.history_ends])
    items[held_out] = (items[held_out] + 1) % WORLD.num_items
    times = WORLD.timestamps.clone()
    times[held_out] += 10**6
    other = Interactions(WORLD.users, items, times, None, WORLD.user_ids, WORLD.item_ids, "changed")
    for settings in ({}, {"half_life_days": 1.0}, {"recent_share": 0.3}):
        found, expected = Popularity.fit(other, **settings), Popularity.fit(WORLD, **settings)
        assert torch.equal(found.item_scores, expected.item_scores)


def test_recommends_to_anybody() -> None:
    popularity = Popularity.fit(SPLIT)
    order = sorted(range(25), key=lambda item: (-float(popularity.item_scores[item]), item))
    table = popularity.recommend(histories={"new": [], "met": [order[0]]}, k=3)
    assert table["user"].to_list() == ["new"] * 3 + ["met"] * 3
    assert table["item"].to_list() == order[:3] + order[1:4]
    assert table["score"].to_list() == [float(popularity.item_scores[item]) for item in order[:3] + order[1:4]]
    assert popularity.recommend([999], k=3)["item"].to_list() == order[:3]  # a user without events
    assert popularity.recommend([0, 999, 1], k=2).equals(
        pl.concat([popularity.recommend([user], k=2) for user in (0, 999, 1)])
    )


def test_errors_name_the_values() -> None:
    events = pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3]})
    with pytest.raises(InvalidInputError, match="half_life_days is 3 but a table has no times; give recent_share"):
        Popularity.fit(Interactions.from_frame(events, timestamp=None), half_life_days=3)
    with pytest.raises(InvalidInputError, match=r"half_life_days is 0\.0"):
        Popularity.fit(SPLIT, half_life_days=0)
    with pytest.raises(InvalidInputError, match=r"recent_share is 1\.5; give a share above 0 and up to 1"):
        Popularity.fit(SPLIT, recent_share=1.5)
