"""The synthetic world keeps what its docstring promises."""

import pytest
import torch

from railsearch.data import make_world
from railsearch.errors import InvalidInputError
from railsearch.models import rank_pairs


def test_same_seed_same_world() -> None:
    first, second, other = (make_world(num_users=20, num_items=50, seed=seed) for seed in (1, 1, 2))
    for name in ("query_embeddings", "item_embeddings", "train_pairs", "validation_pairs", "test_pairs"):
        assert torch.equal(getattr(first, name), getattr(second, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_truth_is_nearly_the_best_cosine_of_any_interest_and_aspect() -> None:
    world = make_world(num_users=30, num_items=60, num_interests=3, num_aspects=2, temperature=0.05)
    query_parts = world.truth.query_parts(world.query_embeddings)
    item_parts = world.truth.item_parts(world.item_embeddings)
    found = world.truth.compare(query_parts, item_parts)
    best = found.component_scores.amax(dim=-1)
    is_liked = best > 10  # the best cosine is above 1/2
    assert bool(is_liked.any())
    assert float((best - found.scores)[is_liked].max()) < 1.0


def test_truth_needs_far_more_dimensions_than_the_embeddings_have() -> None:
    world = make_world(num_users=300, num_items=300, num_interests=2, num_aspects=2, taste_dim=4)
    assert world.query_embeddings.shape == world.item_embeddings.shape == (300, 8)
    assert world.preference_rank() > 5 * 8


def test_likes_are_different_items_and_follow_the_truth() -> None:
    world = make_world(num_users=40, num_items=200, likes_per_user=10, temperature=0.01)
    likes = torch.cat(
        [world.train_pairs.view(40, 10, 2), world.validation_pairs[:, None], world.test_pairs[:, None]], 1
    )
    for user in range(40):
        assert bool((likes[user, :, 0] == user).all())
        assert len(set(likes[user, :, 1].tolist())) == 12
    ranks = rank_pairs(
        world.truth, world.query_embeddings, world.item_embeddings, world.test_pairs, seen=world.train_pairs
    )
    assert float(ranks.float().median()) <= 5  # by chance it would be near 95


def test_draws_follow_softmax_of_the_truth() -> None:
    world = make_world(num_users=1, num_items=8, likes_per_user=1, temperature=0.5, taste_dim=3)
    expected = world.truth(world.query_embeddings, world.item_embeddings).softmax(dim=1)[0]
    from railsearch.data.synthetic.world import _draw_likes

    generator = torch.Generator().manual_seed(0)
    many = world.query_embeddings.expand(20_000, -1)
    drawn = _draw_likes(world.truth, many, world.item_embeddings, 1, generator)[:, 0]
    share = torch.bincount(drawn, minlength=8) / 20_000
    torch.testing.assert_close(share, expected, rtol=0, atol=0.015)


def test_from_tiny_to_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = make_world(num_users=1, num_items=3, likes_per_user=1, num_interests=1, num_aspects=1, taste_dim=2)
    assert len(tiny.train_pairs) == 1
    monkeypatch.setattr("railsearch.data.synthetic.world.PAIRS_PER_BLOCK", 64)
    blocked = make_world(num_users=5, num_items=300)
    assert blocked.train_pairs[:, 1].max() > 64
    assert len(blocked.train_pairs[:, 1].unique()) > 20


@pytest.mark.slow
def test_a_million_items() -> None:
    world = make_world(num_users=4, num_items=1_000_000)
    assert world.item_embeddings.shape == (1_000_000, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_items": 10}, r"num_items is 10 but every user likes 20 \+ 2 different items; ask for num_items >= 22"),
        ({"taste_dim": 0}, "taste_dim is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_world(**options)
