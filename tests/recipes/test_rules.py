"""Rules of `Recommender.recommend` and similar items, against naive loops over the whole ranking."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from railsearch import Average, Faiss, MaxPer, Recommender
from railsearch.data import Interactions
from railsearch.errors import InvalidInputError, NotEnoughItemsError
from tests.support.training_worlds import random_walks, small_recipe

GENRES = ["Action|Comedy", "Drama", "Comedy|Drama", "War"]
ITEMS = pl.DataFrame(
    {
        "item": [f"m{item}" for item in range(40)],
        "genres": [GENRES[item % 4] for item in range(40)],
        "tags": [genres.split("|") for genres in (GENRES[item % 4] for item in range(40))],
        "year": [1990 + item % 10 for item in range(40)],
        "shop": [None if item % 2 else "only" for item in range(40)],
    }
)
GENRE_OF = dict(zip(ITEMS["item"], ITEMS["tags"].to_list(), strict=True))


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    plain = random_walks()
    events = pl.DataFrame(
        {"user": plain.users.numpy(), "item": [f"m{item}" for item in plain.items.tolist()],
         "timestamp": plain.timestamps.numpy()}
    )  # fmt: skip
    return Recommender.fit(Interactions.from_frame(events, catalogue=ITEMS), small_recipe("hstu", "mixture", epochs=1))


def ranking_of(recommender: Recommender, user: int, **options: object) -> list[tuple[str, float]]:
    """Return all items that a user may get, best first."""
    table = recommender.recommend(
        [user], 40 if recommender.index is None else len(recommender.index), pad=True, **options
    )
    return list(zip(table["item"], table["score"], strict=True))


def capped(ranking: list[tuple[str, float]], cap: int, k: int) -> list[str]:
    chosen: list[str] = []
    for item, _ in ranking:
        if all(sum(genre in GENRE_OF[other] for other in chosen) < cap for genre in GENRE_OF[item]):
            chosen.append(item)
    return chosen[:k]


def test_caps_equal_a_walk_down_the_whole_ranking(recommender: Recommender, tmp_path: Path) -> None:
    users = [0, 7, 23]
    wanted = {user: capped(ranking_of(recommender, user), 2, 5) for user in users}
    on_disk = Recommender.load(saved(recommender, tmp_path), interactions=recommender.interactions)
    on_disk.build_index(tmp_path / "items.index")
    on_disk.open_index(tmp_path / "items.index", engine=Faiss(kind="flat"))
    for caps in ({"genres": MaxPer(2, separator="|")}, {"tags": 2}):
        for model, strategy in ((recommender, None), (on_disk, None), (on_disk, Average(6))):
            found = model.recommend(users, 5, max_per=caps, pool=5, pad=True, strategy=strategy)
            if strategy is None:
                assert {user: own["item"].to_list() for (user,), own in found.group_by("user")} == wanted
            for _, own in found.group_by("user"):
                assert own["rank"].to_list() == list(range(1, len(own) + 1))
                assert own["score"].is_sorted(descending=True)
                assert max(sum(genre in GENRE_OF[item] for item in own["item"]) for genre in GENRES[0].split("|")) <= 2


def saved(recommender: Recommender, folder: Path) -> Path:
    recommender.save(folder / "model")
    return folder / "model"


def test_diversity_equals_a_loop(recommender: Recommender) -> None:
    parts = recommender.model.similarity.item_parts(recommender.model.encoder.embed_items().detach())
    components = torch.nn.functional.normalize(parts.components.double().detach(), dim=-1)  # (N, Px, d)
    rows = {item: row for row, item in enumerate(recommender.items["item"])}

    def alike(one: str, other: str) -> float:
        return float((components[rows[one]] * components[rows[other]]).sum(dim=-1).mean())

    pool = ranking_of(recommender, 7)[:12]
    scale = pool[0][1] - pool[-1][1]
    chosen: list[str] = []
    while len(chosen) < 6:
        values = {
            item: 0.6 * (score - pool[-1][1]) / scale - 0.4 * max((alike(item, own) for own in chosen), default=0.0)
            for item, score in pool
            if item not in chosen
        }
        chosen.append(max(values, key=lambda item: values[item]))
    found = recommender.recommend([7], 6, diversity=0.4, pool=12)
    assert found["item"].to_list() == chosen
    scores = dict(pool)
    assert found["score"].to_list() == pytest.approx([scores[item] for item in chosen], rel=1e-5)
    plain = recommender.recommend([7], 6)
    assert recommender.recommend([7], 6, diversity=0.0)["item"].to_list() == plain["item"].to_list()


def test_items_are_excluded_for_everybody_or_for_one_user(recommender: Recommender) -> None:
    first = {user: [item for item, _ in ranking_of(recommender, user)] for user in (0, 7)}
    gone = [first[0][0], first[7][1], "unknown"]
    found = recommender.recommend([0, 7], 5, exclude=set(gone))
    for user in (0, 7):
        left = [item for item in first[user] if item not in gone]
        assert found.filter(pl.col("user") == user)["item"].to_list() == left[:5]
    own = recommender.recommend([0, 7], 5, exclude={7: first[7][:3], 99: ["m1"]})
    assert own.filter(pl.col("user") == 0)["item"].to_list() == first[0][:5]
    assert own.filter(pl.col("user") == 7)["item"].to_list() == first[7][3:8]
    assert recommender.recommend([0, 7], 5, exclude={np.int64(7): first[7][:3]}).equals(own)  # an id from an array


def test_new_users_keep_to_the_rules_too(recommender: Recommender) -> None:
    popular = ranking_of(recommender, 999, cold_start="popular")
    found = recommender.recommend(
        [999, 7], 4, cold_start="popular", max_per={"tags": 1}, exclude={999: [popular[0][0]]}, pad=True
    )
    assert found.filter(pl.col("user") == 999)["item"].to_list() == capped(popular[1:], 1, 4)
    assert found.filter(pl.col("user") == 7)["item"].to_list() == capped(ranking_of(recommender, 7), 1, 4)
    diverse = recommender.recommend([999, 998], 4, cold_start="popular", diversity=0.5, pool=10)
    assert set(diverse["item"]) <= {item for item, _ in popular[:10]}


def test_rules_follow_allow_and_removed_items(recommender: Recommender, tmp_path: Path) -> None:
    model = Recommender.load(saved(recommender, tmp_path), interactions=recommender.interactions)
    index = model.build_index()
    gone = ranking_of(model, 7)[0][0]
    index.remove([model.items["item"].index_of(gone)])
    ranking = [own for own in ranking_of(model, 7) if int(own[0][1:]) % 10 < 6]
    assert gone not in dict(ranking)
    found = model.recommend([7], 3, max_per={"tags": 1}, allow="year < 1996", pad=True)
    assert found["item"].to_list() == capped(ranking, 1, 3)
    assert gone not in model.similar_items(["m1"], 30)["similar"].to_list()
    with pytest.raises(InvalidInputError, match=f"item '{gone}' is not among the 39 items of the index"):
        model.similar_items(gone)
    with pytest.raises(InvalidInputError, match="exclude is a mapping; give a list of items"):
        model.similar_items("m1", 3, exclude={"m1": ["m2"]})


def test_a_tuned_strategy_is_used(recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Recommender.load(saved(recommender, tmp_path), interactions=recommender.interactions)
    index = model.build_index()
    index.contents.tuned = {"k = 3, Flat()": "Average(4)"}
    used = []
    whole = Average.find_rows
    monkeypatch.setattr(Average, "find_rows", lambda self, *rest: (used.append(self), whole(self, *rest))[1])
    model.recommend([7], 3, diversity=0.2, pool=9)
    assert used == [Average(9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_per": {"genre": 2}},
            "max_per names 'genre', which is not a column of the items; choose from: item, genres",
        ),
        ({"diversity": -1}, "diversity is -1; give a number from 0 to 1"),
        ({"diversity": 0.5, "pool": 2}, "pool is 2 but k is 5; ask for pool >= 5"),
        ({"pool": 20}, "pool is 20 but there is no rule to apply"),
        ({"exclude": "m1"}, "exclude is 'm1'; give a list of ids"),
        ({"exclude": [None]}, r"exclude\[0\] is None, which is no item; remove it"),
        ({"exclude": ["m1", None]}, r"exclude\[1\] is None"),
        ({"exclude": {7: ["m1", None]}}, r"exclude\[7\]\[1\] is None"),
        ({"exclude": [["m1"]]}, r"exclude\[0\] is \['m1'\]; give ids of items, not lists of them"),
        ({"exclude": {"7": ["m1"]}}, "exclude names the user '7', a str, but users are int"),
        (
            {"exclude": ITEMS["item"]},
            "k is 5 but exclude and allow leave only 0 of the 40 items; exclude fewer, or pass",
        ),
        ({"exclude": ITEMS["item"][:38]}, r"k is 5 but exclude and allow leave only 2 of the 40 items; ask for k <= 2"),
        (
            {"max_per": {"tags": 1}},
            "k is 5 but the rules leave only [0-9] items for the history of 7; ask for a smaller k, raise",
        ),
    ],
)
def test_wrong_rules(recommender: Recommender, options: dict[str, object], message: str) -> None:
    with pytest.raises((InvalidInputError, NotEnoughItemsError), match=message):
        recommender.recommend([7], 5, **options)


def test_items_without_a_value_have_no_cap(recommender: Recommender) -> None:
    found = recommender.recommend([7], 8, max_per={"shop": 1})
    shops = dict(zip(ITEMS["item"], ITEMS["shop"], strict=True))
    assert sum(shops[item] == "only" for item in found["item"]) == 1
