"""Analysis of a recommender: segments and metrics beyond accuracy, against plain loops over the same lists."""

import json

import polars as pl
import pytest
import torch

from railsearch import Recommender
from railsearch.data import Interactions, Split, leave_last_out
from railsearch.errors import InvalidInputError
from railsearch.evaluation import Analysis, Evaluation, coverage, diversity, gini, novelty, popularity_share
from tests.support.training_worlds import random_walks, small_recipe

K = 7
WORLD = random_walks(num_users=50, lengths=(3, 30))


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit(WORLD, small_recipe("sasrec", "mixture", epochs=1))


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_last_out(WORLD)


@pytest.fixture(scope="module")
def analysis(recommender: Recommender, split: Split) -> Analysis:
    return recommender.analyze(split, k=K, popular=0.25)


def rows_of(items: pl.Series) -> list[int]:
    return [WORLD.item_ids.to_list().index(item) for item in items]


def test_accuracy_is_that_of_evaluate(recommender: Recommender, split: Split, analysis: Analysis) -> None:
    expected = recommender.evaluate(split)
    assert analysis.evaluation.metrics == expected.metrics
    assert torch.equal(analysis.evaluation.ranks, expected.ranks)


def test_lists_are_those_of_recommend(recommender: Recommender, split: Split, analysis: Analysis) -> None:
    """The figures beyond accuracy are those of the lists that `recommend` returns for the visible histories."""
    starts = WORLD.offsets[split.test.users].tolist()
    histories = {
        user: WORLD.item_ids.gather(WORLD.items[first:last].numpy()).to_list()
        for user, first, last in zip(split.test.users.tolist(), starts, split.test.history_ends.tolist(), strict=True)
    }
    table = recommender.recommend(histories=histories, k=K)
    lists = torch.tensor(rows_of(table["item"])).view(-1, K)
    counts = torch.zeros(WORLD.num_items, dtype=torch.int64)
    for user in range(WORLD.num_users):  # training events only: neither the test item nor the one before it
        own = WORLD.items[WORLD.users == user].tolist()
        for item in own[:-2] if len(own) > 2 else own:
            counts[item] += 1
    assert analysis.beyond == pytest.approx(
        {
            f"coverage@{K}": coverage(lists, WORLD.num_items),
            f"gini@{K}": gini(lists, WORLD.num_items),
            f"novelty@{K}": novelty(lists, counts),
            "held-out novelty": novelty(split.test.items, counts),
            f"popularity_share@{K}": popularity_share(lists, counts, popular=0.25),
            "held-out popularity_share": popularity_share(split.test.items, counts, popular=0.25),
            f"diversity@{K}": diversity(lists, recommender.model.encoder.embed_items()),
        }
    )


def test_segments_by_a_plain_loop(split: Split, analysis: Analysis) -> None:
    bounds = {"1-4": (1, 4), "5-9": (5, 9), "10-19": (10, 19), "20-49": (20, 49)}
    lengths = (split.test.history_ends - WORLD.offsets[split.test.users]).tolist()
    by_length = {segment.name: segment for segment in analysis.segments if segment.by == "history length"}
    assert set(by_length) == set(bounds)
    for name, (low, high) in bounds.items():
        ranks = [
            rank
            for rank, length in zip(analysis.evaluation.ranks.tolist(), lengths, strict=True)
            if low <= length <= high
        ]
        expected = Evaluation.of_ranks(ranks, cutoffs=[K], protocol="")
        assert by_length[name].num_queries == len(ranks)
        assert by_length[name].metrics == pytest.approx(expected.metrics)
        assert by_length[name].intervals == expected.intervals
    for by in ("history length", "item popularity"):
        own = [segment for segment in analysis.segments if segment.by == by]
        assert sum(segment.num_queries for segment in own) == analysis.evaluation.num_queries
        mean = sum(segment.num_queries * segment.metrics["MRR"] for segment in own) / analysis.evaluation.num_queries
        assert mean == pytest.approx(analysis.evaluation.metrics["MRR"])


def test_an_item_without_training_events_is_a_segment_of_its_own() -> None:
    events = [(user, item) for user in range(6) for item in range(5)] + [(0, 9), (1, 0), (2, 1)]
    table = pl.DataFrame(events, schema=["user", "item"], orient="row")
    world = Interactions.from_frame(table, timestamp=None)
    found = Recommender.fit(world, small_recipe("sasrec", "cosine", epochs=1)).analyze(world, k=2)
    by_popularity = {each.name: each.num_queries for each in found.segments if each.by == "item popularity"}
    assert by_popularity["not in training"] == 4  # three users end with item 4, and one with 9
    assert sum(by_popularity.values()) == 6


def test_new_users(split: Split) -> None:
    """With a user table, users whom it does not know are new; without one, users without training events."""
    known = Recommender.fit(WORLD, small_recipe("sasrec", "mixture-user", epochs=1))
    assert known.user_ids is not None
    known.user_ids = known.user_ids[:20]
    found = {each.name: each.num_queries for each in known.analyze(split).segments if each.by == "user"}
    expected = int((split.test.users < 20).sum())
    assert found == {"known": expected, "new": len(split.test.users) - expected}


def test_as_table_and_json(analysis: Analysis) -> None:
    table = analysis.to_frame()
    assert table.columns[:6] == ["by", "segment", "users", f"HR@{K}", f"HR@{K} low", f"HR@{K} high"]
    assert len(table) == len(analysis.segments)
    assert (table[f"HR@{K} low"] <= table[f"HR@{K}"]).all()
    read = json.loads(json.dumps(analysis.to_dict()))
    assert read["beyond"] == analysis.beyond
    assert read["segments"][0]["segment"] == table["segment"][0]
    assert read["segments"][0]["intervals"][f"HR@{K}"] == [table[f"HR@{K} low"][0], table[f"HR@{K} high"][0]]
    assert f"coverage@{K}" in str(analysis)


def test_a_user_who_has_seen_almost_everything() -> None:
    """Places that no item can fill are not counted as items."""
    events = [(0, item, item) for item in range(7)] + [(1, item, item) for item in range(3)]
    world = Interactions.from_frame(pl.DataFrame(events, schema=["user", "item", "timestamp"], orient="row"))
    found = Recommender.fit(world, small_recipe("sasrec", "cosine", epochs=1)).analyze(world, k=6)
    assert found.beyond["coverage@6"] == 5 / 7  # user 0 has 1 item left, user 1 has 5


def test_wrong_settings(recommender: Recommender, split: Split) -> None:
    with pytest.raises(InvalidInputError, match="k is 41 but there are 40 items; ask for k <= 40"):
        recommender.analyze(split, k=41)
    with pytest.raises(InvalidInputError, match="popular is 2; give a share"):
        recommender.analyze(split, popular=2)
