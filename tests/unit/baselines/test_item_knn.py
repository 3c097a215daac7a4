"""ItemKNN against plain loops with exact ties; blocks, leaks and errors."""

import pytest
import torch

from railsearch.baselines import ItemKNN, neighbors
from railsearch.data import Interactions, leave_last_out
from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.metrics import summarize
from tests.support.naive_baselines import naive_knn_scores, naive_neighbors, naive_ranks_by
from tests.support.naive_ranking import events_of
from tests.support.training_worlds import random_walks

WORLD = random_walks(num_users=30, num_items=25, seed=3)
SPLIT = leave_last_out(WORLD)


def neighbors_of(knn: ItemKNN) -> list[dict[int, float]]:
    found = []
    for item in range(WORLD.num_items):
        entries, _ = knn.neighbors.of(torch.tensor([item]))
        own = knn.neighbors
        found.append(dict(zip(own.rows[entries].tolist(), own.similarities[entries].tolist(), strict=True)))
    return found


@pytest.mark.parametrize(("num_neighbors", "shrinkage"), [(1, 0.0), (4, 0.0), (100, 0.0), (4, 2.5)])
@pytest.mark.parametrize("pairs_per_block", [1, 60, 2**21])
def test_neighbors_are_those_of_a_plain_loop(
    num_neighbors: int, shrinkage: float, pairs_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "PAIRS_PER_BLOCK", pairs_per_block)
    found = neighbors_of(ItemKNN.fit(SPLIT, num_neighbors=num_neighbors, shrinkage=shrinkage))
    expected = naive_neighbors(SPLIT, num_neighbors, shrinkage)
    for own, reference in zip(found, expected, strict=True):
        assert list(own) == list(reference)  # in the same order
        assert list(own.values()) == pytest.approx(list(reference.values()), abs=2**-24)


@pytest.mark.parametrize("max_length", [1, 3, None])
@pytest.mark.parametrize("has_validation", [True, False])
def test_ranks_are_those_of_a_plain_loop(max_length: int | None, has_validation: bool) -> None:
    split = leave_last_out(WORLD, has_validation=has_validation)
    knn = ItemKNN.fit(split, num_neighbors=6, shrinkage=0, max_length=max_length)
    nearest = naive_neighbors(split, 6, 0.0)
    starts = WORLD.offsets.tolist()
    histories = [
        events_of(WORLD, user)[0][: end - starts[user]]
        for user, end in zip(split.test.users.tolist(), split.test.history_ends.tolist(), strict=True)
    ]
    scores = [naive_knn_scores(nearest, own[-max_length:] if max_length else own) for own in histories]
    assert torch.allclose(knn.scores(histories), torch.tensor(scores, dtype=torch.float64), atol=1e-6, rtol=0)
    ranks = naive_ranks_by(scores, WORLD, split.test)
    assert knn.rank_held_out(WORLD, split.test).tolist() == ranks
    evaluation = knn.evaluate(split)
    assert evaluation.protocol == split.protocol
    assert evaluation.num_queries == len(ranks)
    assert evaluation.metrics["MRR"] == summarize(ranks)["MRR"]


def test_scores_do_not_depend_on_the_batch_or_on_the_order_of_a_history() -> None:
    knn = ItemKNN.fit(SPLIT, max_length=None)
    histories = [events_of(WORLD, user)[0] for user in range(8)]
    together = knn.scores(histories)
    for place, own in enumerate(histories):
        assert torch.equal(knn.scores([own[::-1] + own])[0], together[place])


def test_held_out_events_are_not_read() -> None:
    items = WORLD.items.clone()
    held_out = torch.cat([SPLIT.test.history_ends, SPLIT.validation.history_ends])
    items[held_out] = (items[held_out] + 1) % WORLD.num_items
    other = Interactions(WORLD.users, items, WORLD.timestamps, None, WORLD.user_ids, WORLD.item_ids, "changed")
    found, expected = ItemKNN.fit(other), ItemKNN.fit(WORLD)
    assert neighbors_of(found) == neighbors_of(expected)
    assert (
        found.rank_held_out(other, leave_last_out(other).test).tolist()
        != expected.rank_held_out(WORLD, SPLIT.test).tolist()
    )


def test_recommends_the_best_unseen_items() -> None:
    knn = ItemKNN.fit(SPLIT)
    history = events_of(WORLD, 4)[0]
    scores = knn.scores([history])[0]
    candidates = sorted(set(range(25)) - set(history), key=lambda item: (-float(scores[item]), item))
    by_user, by_history = knn.recommend([4], k=5), knn.recommend(histories=[history], k=5)
    assert by_user["item"].to_list() == by_history["item"].to_list() == candidates[:5]
    assert by_user["score"].to_list() == pytest.approx(scores[candidates[:5]].tolist())
    assert by_user["rank"].to_list() == [1, 2, 3, 4, 5]
    kept = knn.recommend(histories=[history], k=25, filter_viewed=False)
    assert sorted(kept["item"]) == list(range(25))
    assert len(knn.recommend(histories=[history], k=25, pad=True)) == len(candidates)


def test_an_item_without_events_has_no_neighbors() -> None:
    world = random_walks(num_users=4, num_items=500, seed=1)
    knn = ItemKNN.fit(world)
    unseen = next(item for item in range(500) if item not in set(world.items.tolist()))
    assert not knn.scores([[unseen]]).any()
    assert knn.recommend(histories=[[unseen]], k=2)["score"].to_list() == [0.0, 0.0]


def test_errors_come_before_the_work() -> None:
    knn = ItemKNN.fit(SPLIT)
    with pytest.raises(InvalidInputError, match="num_neighbors is 0; ask for num_neighbors >= 1"):
        ItemKNN.fit(SPLIT, num_neighbors=0)
    with pytest.raises(InvalidInputError, match=r"shrinkage is -1\.0"):
        ItemKNN.fit(SPLIT, shrinkage=-1.0)
    with pytest.raises(InvalidInputError, match="max_length is 0"):
        ItemKNN.fit(SPLIT, max_length=0)
    with pytest.raises(InvalidInputError, match=r"no events; .*popular items with railsearch.baselines.Popularity"):
        knn.recommend(histories=[[]])
    with pytest.raises(NotEnoughItemsError, match="k is 26 but there are 25 items"):
        knn.recommend([1], k=26, pad=True)
    with pytest.raises(InvalidInputError, match="the split has 24 items and they are not the 25"):
        knn.evaluate(leave_last_out(random_walks(num_users=30, num_items=24)))
    with pytest.raises(InvalidInputError, match="have 24 items but the baseline was fitted on 25"):
        knn.rank_held_out(random_walks(num_users=30, num_items=24), SPLIT.test)
