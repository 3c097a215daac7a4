"""Recommender: what it memorises, recommends and measures, against scores by hand and against ir-measures."""

import dataclasses
import datetime as dt
import math
from pathlib import Path

import ir_measures
import polars as pl
import pytest
import torch
from ir_measures import RR, Success, nDCG

from railsearch import Index, Recipe, Recommender, TwoPass
from railsearch.data import HeldOut, Interactions, Split, leave_last_out
from railsearch.errors import FingerprintError, InvalidInputError, NotEnoughItemsError
from railsearch.evaluation import evaluate_test
from railsearch.foundation.metrics import hit_rate
from railsearch.models import rank_held_out
from tests.support.cycles import cycles
from tests.support.naive_ranking import compare_alone, encode_alone, events_of, naive_ranks
from tests.support.training_worlds import ENCODERS, SIMILARITIES, Naming, random_walks, small_recipe

WORLD = random_walks()
COLUMNS = {"user": pl.Int64, "item": pl.Int64, "score": pl.Float32, "rank": pl.Int64}


@pytest.fixture(scope="module", params=["sasrec-mixture", "hstu-mixture-user", "hstu-cosine"])
def recommender(request: pytest.FixtureRequest) -> Recommender:
    encoder, similarity = request.param.split("-", 1)
    return Recommender.fit(WORLD, small_recipe(encoder, similarity))


@pytest.fixture(scope="module")
def with_user_table() -> Recommender:
    """A model to whom users matter: every row of its table is large."""
    recommender = Recommender.fit(WORLD, small_recipe("sasrec", "mixture-user", epochs=1))
    with torch.no_grad():
        recommender.model.similarity.user_table.rows.weight[1:] = torch.randn(50, 16, generator=torch.Generator())
    return recommender


def history(user: int, world: Interactions = WORLD) -> list[object]:
    return [world.item_ids[item] for item in events_of(world, user)[0]]


MEMORISE_BY_DEFAULT = {("sasrec", "cosine"), ("hstu", "mixture-user")}


def answers(table: pl.DataFrame) -> list[tuple[object, ...]]:
    return table.select("item", "score", "rank").rows()


@pytest.mark.parametrize(
    ("encoder", "similarity"),
    [
        pytest.param(
            encoder, similarity, marks=[] if (encoder, similarity) in MEMORISE_BY_DEFAULT else pytest.mark.slow
        )
        for encoder in ENCODERS
        for similarity in SIMILARITIES
    ],
)
def test_memorises_50_users(encoder: str, similarity: str) -> None:
    world = random_walks(lengths=(5, 8))
    split = leave_last_out(world, has_validation=False)
    recipe = small_recipe(
        encoder, similarity, dim=64, epochs=50, learning_rate=0.002, negatives="uniform", num_negatives=39,
        schedule="linear", validate_every=50,
    )  # fmt: skip
    recommender = Recommender.fit(world, recipe, split=split)
    assert recommender.report.epochs[-1].loss < 0.2 * recommender.report.epochs[0].loss
    last = split.train_ends - 1  # of what was trained on
    ranks = rank_held_out(recommender.model, world, HeldOut(torch.arange(50), world.items[last], last))
    assert hit_rate(ranks, 1) > 0.9


def test_users_share_rows_of_the_table_only_if_that_is_asked_for() -> None:
    recipe = small_recipe(similarity="mixture-user", epochs=1)

    def with_table(**settings: object) -> Recipe:
        return Recipe.model_validate(
            {**recipe.model_dump(), "similarity": {**recipe.similarity.model_dump(), **settings}}
        )

    message = "user_table_size is 49 but there are 50 users; set it to 50 or more, or set similarity.user_table_hashing"
    with pytest.raises(InvalidInputError, match=message):
        Recommender.fit(WORLD, with_table(user_table_size=49))
    shared = Recommender.fit(WORLD, with_table(user_table_size=7, user_table_hashing=True))
    assert len(shared.model.similarity.user_table.rows.weight) == 7 + 1


def test_learns_a_pattern_and_keeps_the_epoch_that_validation_picks() -> None:
    recommender = Recommender.fit(cycles(), small_recipe(dim=32, epochs=25))
    assert recommender.card.metrics["HR@10"] > 0.9
    validations = [epoch.validation["MRR"] for epoch in recommender.report.epochs]
    assert recommender.report.best.validation["MRR"] == max(validations)
    assert recommender.recommend(histories=[[4, 7, 10, 13]], k=3)["item"].to_list()[0] == 16


@pytest.mark.parametrize("filter_viewed", [True, False])
def test_recommendations_are_the_best_by_hand(recommender: Recommender, filter_viewed: bool) -> None:
    users = [7, 3, 49, 7]  # one of them twice
    found = recommender.recommend(users, 5, filter_viewed=filter_viewed)
    assert found.schema == COLUMNS
    assert found["user"].to_list() == [user for user in users for _ in range(5)]
    assert found["rank"].to_list() == [1, 2, 3, 4, 5] * 4
    for place, user in enumerate(users):
        items, times = events_of(WORLD, user)
        with torch.no_grad():
            query = encode_alone(recommender.model, items[-8:], times[-8:], times[-1])
            scores = compare_alone(recommender.model, query, user, list(range(40)))[0]
        allowed = [item for item in range(40) if not (filter_viewed and item in items)]
        best = sorted(allowed, key=lambda item: (-float(scores[item]), item))[:5]
        own = found[5 * place : 5 * place + 5]
        assert own["item"].to_list() == best
        torch.testing.assert_close(own["score"].to_torch(), scores[best], rtol=1e-4, atol=1e-4)


def test_users_and_their_histories_get_the_same(recommender: Recommender) -> None:
    by_user = recommender.recommend([1, 2, 3], 4)
    table = pl.DataFrame(
        {
            "user": WORLD.user_ids.gather(WORLD.users.numpy()),
            "item": WORLD.item_ids.gather(WORLD.items.numpy()),
            "timestamp": WORLD.timestamps.numpy(),
        }
    ).filter(pl.col("user").is_in([1, 2, 3]))
    assert recommender.recommend(histories=table, k=4).equals(by_user)
    assert recommender.recommend(histories=table.sample(fraction=1, shuffle=True, seed=0), k=4).equals(by_user)
    assert recommender.recommend(histories=OnlyArrow(table), k=4).equals(by_user)
    assert recommender.recommend(histories=Interactions.from_frame(table), k=4).equals(by_user)
    searched = recommender.recommend(histories=table, k=4, strategy=TwoPass())
    assert searched.drop("score").equals(by_user.drop("score"))


class OnlyArrow:
    """A table of a library that polars does not know by name."""

    def __init__(self, table: pl.DataFrame) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_lists_and_mappings_get_the_same(recommender: Recommender) -> None:
    lists = [history(1), tuple(history(2)), pl.Series(history(3))]
    by_place = recommender.recommend(histories=lists, k=4)
    by_name = recommender.recommend(histories=dict(zip(("a", "b", "c"), lists, strict=True)), k=4)
    assert by_place["user"].to_list() == [place for place in range(3) for _ in range(4)]
    assert by_name["user"].to_list() == [name for name in "abc" for _ in range(4)]
    assert answers(by_place) == answers(by_name)


def test_many_histories_at_once_get_what_each_gets_alone(recommender: Recommender) -> None:
    lists = [history(user) for user in range(50)] * 25  # more than one search takes at once
    found = recommender.recommend(histories=lists, k=3)
    assert found.height == 3 * len(lists)
    for user in (0, 49):
        alone = recommender.recommend(histories=[history(user)], k=3)
        again = found.filter(pl.col("user") % 50 == user)
        assert again["item"].to_list() == alone["item"].to_list() * 25
        torch.testing.assert_close(again["score"].to_torch(), alone["score"].to_torch().repeat(25))


def test_nobody_needs_to_have_been_there_in_training(with_user_table: Recommender) -> None:
    """A place in a list is no user, and a user that the table does not know has no component."""
    known = with_user_table.recommend(histories={0: history(1)}, k=5)
    stranger = with_user_table.recommend(histories={"somebody": history(1)}, k=5)
    in_list = with_user_table.recommend(histories=[history(1)], k=5)
    assert answers(in_list) == answers(stranger)
    assert answers(in_list) != answers(known)
    beyond = with_user_table.recommend(histories={50: history(1), -1: history(1)}, k=5)
    assert beyond["item"].to_list() == stranger["item"].to_list() * 2


def test_a_known_user_keeps_its_component_with_a_new_history(with_user_table: Recommender) -> None:
    with_times = with_user_table.recommend([1], 5)
    assert answers(with_user_table.recommend(histories={1: history(1)}, k=5)) == answers(with_times)  # no times needed
    assert answers(with_user_table.recommend(histories={2: history(1)}, k=5)) != answers(with_times)


def test_of_a_long_history_the_last_events_count_and_all_are_filtered(recommender: Recommender) -> None:
    last = [30, 31, 32, 33, 34, 35, 36, 37]  # as many as max_length
    earlier = [item for item in range(28) for _ in range(3)]
    short, long = (recommender.recommend(histories=[own], k=40, filter_viewed=False) for own in (last, earlier + last))
    assert answers(short) == answers(long)
    filtered = recommender.recommend(histories=[earlier + last], k=4)
    assert sorted(filtered["item"]) == [28, 29, 38, 39]


def test_the_time_of_the_request_matters_to_hstu_alone(recommender: Recommender) -> None:
    last = int(events_of(WORLD, 5)[1][-1])
    now, later = (recommender.recommend([5], 5, at=at) for at in (last, last + 10**7))
    assert answers(now) == answers(recommender.recommend([5], 5))
    assert (answers(now) != answers(later)) == (recommender.recipe.encoder.kind == "hstu")


@pytest.mark.parametrize("kind", ["sasrec", "hstu"])
def test_lists_carry_no_times(kind: str) -> None:
    recommender = Recommender.fit(WORLD, small_recipe(kind, epochs=1))
    with pytest.raises(InvalidInputError, match=r"at is 5 but lists carry no times; give a table with a column times"):
        recommender.recommend(histories=[[1, 2]], k=1, at=5)
    with pytest.raises(InvalidInputError, match=r"at is 1\.5"):
        recommender.recommend([1], 1, at=1.5)


NAMINGS: dict[str, tuple[Naming, Naming]] = {
    "text": (lambda user: f"user {user}", lambda item: f"Ä-{item} 🎬"),
    "negative": (lambda user: -user, lambda item: 7 * item - 100),
    "large": (lambda user: 2**62 + user, lambda item: 2**62 - item),
    "dates": (lambda user: dt.date(2020, 1, 1) + dt.timedelta(user), lambda item: dt.date(1990, 1, 1 + item % 31)),
    "fractions": (lambda user: user / 2, lambda item: item / 4),
}


@pytest.mark.parametrize("naming", NAMINGS)
def test_ids_come_back_as_they_were_given(naming: str) -> None:
    user_name, item_name = NAMINGS[naming]
    num_items = 31
    named = random_walks(num_items=num_items, user_name=user_name, item_name=item_name)
    recommender = Recommender.fit(named, small_recipe(similarity="mixture-user", epochs=1))
    user = named.user_ids[3]
    own = events_of(named, 3)[0]
    found = recommender.recommend([user], num_items - len(set(own)))
    assert found["user"].to_list() == [user] * found.height
    assert set(found["item"]) == {item_name(item) for item in range(num_items)} - {named.item_ids[row] for row in own}
    assert answers(recommender.recommend(histories={user: [named.item_ids[row] for row in own]}, k=3)) == answers(
        found[:3]
    )


@pytest.mark.parametrize(
    ("item", "is_known"), [(3, True), (3.0, True), ("3", True), (3.5, False), ("03", False), ("x", False), (-1, False),
                           (40, False), (2**63, False), (None, False), (math.nan, False), ([3], False)],
)  # fmt: skip
def test_an_item_is_known_where_nothing_of_it_is_lost(recommender: Recommender, item: object, is_known: bool) -> None:
    expected = answers(recommender.recommend(histories=[[3]], k=2))
    if is_known:
        assert answers(recommender.recommend(histories=[[item]], k=2)) == expected
        return
    with pytest.raises(InvalidInputError, match=r"which the model does not know|does not hold ids of one type"):
        recommender.recommend(histories=[[item]], k=2)


def test_unknown_items_are_ignored_where_that_is_asked_for(recommender: Recommender) -> None:
    expected = recommender.recommend(histories=[[3, 5]], k=3)
    for odd in ([3, 99, 5], [-7, 3, 5], [3, 5, 2**62], ["x", "3", "5"], [3.0, 5.5, 5.0]):
        assert recommender.recommend(histories=[odd], k=3, unknown_items="ignore").equals(expected), odd


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give exactly one of users and histories"),
        ({"users": [1], "histories": [[1]]}, "give exactly one of users and histories"),
        (
            {"users": [1, 99]},
            r"users\[1\] is 99, whose history is unknown; pass it as histories=..., or call recommend with cold_",
        ),
        ({"users": ["nobody"]}, r"users\[0\] is 'nobody', whose history is unknown"),
        ({"users": "1"}, "users is '1'; give a list of ids"),
        ({"users": 1}, "users is 1; give a list of ids"),
        ({"users": []}, "there are no users or histories; give at least one"),
        ({"histories": []}, "there are no users or histories"),
        ({"histories": {}}, "there are no users or histories"),
        ({"histories": [[1], []]}, r"histories\[1\] has no events; there is nothing to recommend from"),
        ({"histories": {"ann": []}}, "the history of 'ann' has no events"),
        (
            {"histories": [[99, 98]], "unknown_items": "ignore"},
            r"histories\[0\] has no known item; there is nothing to recommend from: omit it, or call recommend "
            'with cold_start="popular"',
        ),
        (
            {"histories": {"ann": [1, 99]}},
            "the history of 'ann' has item 99, which the model does not know; remove it, or pass "
            'unknown_items="ignore"',
        ),
        ({"histories": [1, 2, 3]}, r"histories\[0\] is 1; give a list of ids"),
        ({"histories": ["12"]}, r"histories\[0\] is '12'; give a list of ids"),
        ({"histories": "12"}, "histories is a str; give lists of item ids, a mapping to such lists, or a table"),
        ({"histories": 5}, "histories is a int; give lists of item ids"),
        ({"histories": [[1, "x"]]}, r"histories\[0\] has item 'x', which|histories\[0\] does not hold ids of one"),
        ({"histories": pl.DataFrame({"user": [1], "item": [1]})}, "no column 'timestamp'"),
        ({"histories": [[1]], "unknown_items": "guess"}, "unknown_items is 'guess'; choose from: refuse, ignore"),
        ({"histories": [[1]], "cold_start": "guess"}, "cold_start is 'guess'; choose from: refuse, popular"),
        ({"histories": [[1]], "k": 0}, "k is 0; ask for k >= 1"),
        ({"histories": [[1]], "k": 41}, "k is 41 but there are 40 items; ask for k <= 40"),
        (
            {"histories": {"a": [1], "ann": [1, 2, 1]}, "k": 39},
            "k is 39 but the history of 'ann' leaves 38 of the 40 items; ask for k <= 38, or pass filter_viewed=False",
        ),
        ({"histories": [[1]], "strategy": "TwoPass"}, "strategy is 'TwoPass'; give a strategy such as"),
    ],
)
def test_what_cannot_work_is_refused(recommender: Recommender, arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        recommender.recommend(**arguments)


def test_too_few_items_are_an_error_of_their_own(recommender: Recommender) -> None:
    with pytest.raises(NotEnoughItemsError):
        recommender.recommend(histories=[list(range(39))], k=2)
    assert recommender.recommend(histories=[list(range(39))], k=1)["item"].to_list() == [39]


@pytest.mark.parametrize("has_validation", [True, False])
def test_evaluation_is_that_of_ir_measures(recommender: Recommender, has_validation: bool) -> None:
    world = random_walks(lengths=(1, 14), seed=3)  # the same users and items with other histories
    split = leave_last_out(world, has_validation=has_validation)
    counted = set(split.test.users.tolist())
    with torch.no_grad():
        ranked = naive_ranks(recommender.model, world, 1)
    enough = [user for user in range(50) if len(events_of(world, user)[0]) > 1]
    by_user = {user: answer for user, answer in zip(enough, ranked, strict=True) if user in counted}
    qrels = [ir_measures.Qrel(str(user), str(answer[0]), 1) for user, answer in by_user.items()]
    run = [
        ir_measures.ScoredDoc(str(user), str(item), -float(place))
        for user, answer in by_user.items()
        for place, item in enumerate(answer[1:])
    ]
    measures = {
        "HR@1": Success @ 1, "HR@10": Success @ 10, "HR@50": Success @ 50, "HR@200": Success @ 200, "MRR": RR,
        "NDCG@10": nDCG @ 10, "NDCG@50": nDCG @ 50, "NDCG@200": nDCG @ 200,
    }  # fmt: skip
    expected = ir_measures.calc_aggregate(measures.values(), qrels, run)
    found = recommender.evaluate(split)
    assert found.metrics == pytest.approx({name: expected[measure] for name, measure in measures.items()})
    assert found.num_queries == len(counted) < 50
    assert found.protocol == split.protocol
    assert f"{len(counted)} users ({50 - len(counted)} with too few events are not counted)" in found.protocol
    assert "full ranking over 40 items, those in the history excluded" in found.protocol
    assert ("the one before for validation" in found.protocol) == has_validation
    assert found.protocol in str(found)


def test_the_test_is_evaluated_as_it_was_after_training(recommender: Recommender) -> None:
    assert recommender.evaluate(leave_last_out(WORLD)).metrics == recommender.card.metrics


def test_evaluation_on_other_users_does_not_take_them_for_those_of_training(with_user_table: Recommender) -> None:
    own = leave_last_out(WORLD)
    strangers = leave_last_out(random_walks(user_name=lambda user: f"stranger {user}"))  # with the same histories
    later = leave_last_out(random_walks(user_name=lambda user: user + 25))  # half of them known, as other rows
    rows = torch.tensor([25 + user if user < 25 else -1 for user in range(50)])
    with_none = evaluate_test(with_user_table.model, own, user_rows=torch.full((50,), -1)).metrics
    with_half = evaluate_test(with_user_table.model, own, user_rows=rows).metrics
    assert with_user_table.evaluate(strangers).metrics == pytest.approx(with_none)
    assert with_user_table.evaluate(later).metrics == pytest.approx(with_half)
    assert len({metrics["MRR"] for metrics in (with_none, with_half, with_user_table.evaluate(own).metrics)}) == 3


def test_a_split_of_unknown_items_is_refused(recommender: Recommender) -> None:
    other = random_walks(item_name=lambda item: item + 1)
    with pytest.raises(InvalidInputError, match=r"40 items, of which 1 are not among the 40 of this model, such as 40"):
        recommender.evaluate(leave_last_out(other))


def test_a_split_of_known_items_in_another_order_is_ranked_alike(recommender: Recommender) -> None:
    expected = recommender.evaluate(WORLD)
    assert recommender.evaluate(random_walks(item_name=str)) == expected
    fewer = random_walks(num_items=39)
    found = recommender.evaluate(fewer)
    assert "1 items of the model without events are ranked too" in found.protocol
    whole = Interactions.from_frame(
        pl.DataFrame({"user": fewer.users.numpy(), "item": fewer.items.numpy(), "timestamp": fewer.timestamps.numpy()}),
        catalogue=list(range(40)),
    )
    assert found.metrics == recommender.evaluate(whole).metrics


def test_a_split_of_ones_own() -> None:
    """Hold out something else: the test is each user's second item."""
    starts = WORLD.offsets[:-1]
    test = HeldOut(torch.arange(50), WORLD.items[starts + 1], starts + 1)
    split = Split(WORLD, WORLD.offsets[1:], None, test, "the second item")
    recommender = Recommender.fit(WORLD, small_recipe(epochs=1), split=split)
    assert recommender.card.protocol == "the second item"
    with pytest.raises(InvalidInputError, match="the split belongs to other interactions; split the given ones"):
        Recommender.fit(random_walks(), small_recipe(), split=split)


def test_the_same_recipe_gives_the_same_model() -> None:
    torch.manual_seed(1)
    first = Recommender.fit(WORLD, small_recipe("hstu", "mixture-user", epochs=1))
    torch.manual_seed(2)
    second = Recommender.fit(WORLD, small_recipe("hstu", "mixture-user", epochs=1))
    other = Recommender.fit(WORLD, small_recipe("hstu", "mixture-user", epochs=1, seed=1))
    weights = [each.model.state_dict() for each in (first, second, other)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert not any(torch.equal(tensor, weights[2][name]) for name, tensor in weights[0].items() if "bias" not in name)


def test_fit_refuses_what_it_cannot_train_on() -> None:
    with pytest.raises(InvalidInputError, match="a table is a list; give a table with an Arrow interface"):
        Recommender.fit([[1, 2, 3]])
    with pytest.raises(InvalidInputError, match="no user has more than 2 events"):
        Recommender.fit(random_walks(lengths=(1, 2)))
    with pytest.raises(InvalidInputError, match="num_heads is 3 but dim is 16; choose num_heads that divides dim"):
        Recommender.fit(WORLD, Recipe(encoder={"kind": "sasrec", "dim": 16, "num_heads": 3}))
    with pytest.raises(InvalidInputError, match="metric is 'HR@7' but validation measures: HR@1, HR@10"):
        Recommender.fit(WORLD, small_recipe(metric="HR@7", epochs=10**6))  # before any work


@pytest.mark.parametrize("naming", [None, "text", "negative"])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_an_index_finds_what_is_recommended(tmp_path: Path, naming: str | None, is_on_disk: bool) -> None:
    user_name, item_name = (int, lambda item: 3 * item + 5) if naming is None else NAMINGS[naming]
    named = random_walks(user_name=user_name, item_name=item_name)
    recommender = Recommender.fit(named, small_recipe("hstu", "mixture-user", epochs=1))
    index = recommender.build_index(tmp_path / "index" if is_on_disk else None)
    if is_on_disk:
        index = Index.open(tmp_path / "index")
    lists = [history(user, named) for user in range(3)]
    expected = recommender.recommend(histories=lists, k=6, filter_viewed=False)
    found = index.search(recommender.encode(lists), 6).to_frame()
    assert found["item"].to_list() == expected["item"].to_list()
    assert found["score"].to_list() == expected["score"].to_list()
    assert (found["id"].to_list() == expected["item"].to_list()) == (naming is None)


@pytest.fixture
def titled() -> Interactions:
    events = random_walks()
    table = pl.DataFrame(
        {
            "user": events.user_ids.gather(events.users.numpy()),
            "item": events.item_ids.gather(events.items.numpy()),
            "timestamp": events.timestamps.numpy(),
        }
    )
    catalogue = pl.DataFrame({"item": list(range(40)), "year": [1980 + item for item in range(40)]})
    return Interactions.from_frame(table, catalogue=catalogue)


def test_recommendations_come_from_an_index_on_disk(titled: Interactions, tmp_path: Path) -> None:
    recommender = Recommender.fit(titled, small_recipe("hstu", "mixture-user", epochs=1))
    expected = recommender.recommend([1, 2, 3], 5)
    recommender.save(tmp_path / "model")
    recommender.build_index(tmp_path / "index")
    assert recommender.recommend([1, 2, 3], 5).equals(expected)
    loaded = Recommender.load(tmp_path / "model", interactions=titled)
    index = loaded.open_index(tmp_path / "index")
    assert loaded.index is index
    assert index.source == {
        "kind": "railsearch.recommender", "model": loaded.fingerprint, "folder": str((tmp_path / "model").resolve()),
    }  # fmt: skip
    assert loaded.recommend([1, 2, 3], 5).equals(expected)
    index.remove(expected["item"].unique().to_list())
    again = loaded.recommend([1, 2, 3], 5)
    assert not set(again["item"]) & set(expected["item"])
    with pytest.raises(NotEnoughItemsError, match=r"k is 40 but there are \d\d items"):
        loaded.recommend([1], 40)


def test_a_catalogue_may_have_columns_that_tables_of_results_have(titled: Interactions) -> None:
    columns = titled.item_columns
    assert columns is not None
    reserved = columns.with_columns(id=pl.lit("a"), score=pl.lit(0.5), rank=pl.lit(1), query=pl.lit(None))
    taken = dataclasses.replace(titled, item_columns=reserved)
    recommender = Recommender.fit(taken, small_recipe(epochs=1))
    assert recommender.recommend([1], 3, allow="year >= 2005").columns == ["user", "item", "score", "rank"]
    assert recommender.items.columns == ["item", "year", "id", "score", "rank", "query"]
    assert recommender.index is not None
    assert recommender.index.describe()["metadata"] == ["item", "year"]


def test_an_index_of_another_model_is_refused(tmp_path: Path) -> None:
    one, other = (Recommender.fit(WORLD, small_recipe(similarity="cosine", epochs=1, seed=seed)) for seed in (0, 1))
    one.build_index(tmp_path / "index")
    with pytest.raises(
        FingerprintError, match=f"was built by recommender {one.fingerprint} but this is {other.fingerprint}; load the"
    ):
        other.open_index(tmp_path / "index")
    assert other.index is None
    Index.build(one.model.similarity, one.model.encoder.embed_items().detach(), path=tmp_path / "plain")
    with pytest.raises(FingerprintError, match="plain was not built by a recommender; search it with embeddings"):
        one.open_index(tmp_path / "plain")


def test_only_allowed_items_are_recommended(titled: Interactions) -> None:
    recommender = Recommender.fit(titled, small_recipe(epochs=1))
    everything = recommender.recommend([1, 2], 25)
    recent = recommender.recommend([1, 2], 3, allow="year >= 2005")
    for user in (1, 2):
        ranked = [item for item in everything.filter(pl.col("user") == user)["item"] if item >= 25]
        assert recent.filter(pl.col("user") == user)["item"].to_list() == ranked[:3]
    with pytest.raises(NotEnoughItemsError):
        recommender.recommend([1], 3, allow=[7])
    few = recommender.recommend([1, 2], 3, allow=[7, 39], pad=True)
    assert set(few["item"]) <= {7, 39}
    assert few["score"].is_finite().all()


def test_the_tuned_strategy_of_the_index_is_used(titled: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender.fit(titled, small_recipe(epochs=1))
    index = recommender.build_index()
    used = []
    search = Index.search
    monkeypatch.setattr(Index, "search", lambda *given, **named: (used.append(given[3]), search(*given, **named))[1])
    recommender.recommend([1], 3)
    recommender.recommend([1], 3, strategy=TwoPass())
    assert used == [None, TwoPass()]  # None: the index chooses what it was tuned to
    assert recommender.index is index


def test_search_has_a_certificate(recommender: Recommender) -> None:
    lists = [history(1), history(2)]
    result = recommender.search(lists, 6, TwoPass())
    expected = recommender.recommend(histories=lists, k=6, filter_viewed=False)
    assert result.is_exact.all()
    assert result.ids.flatten().tolist() == expected["item"].to_list()
    assert result.to_frame()["item"].to_list() == expected["item"].to_list()
    without = recommender.search(lists, 3, exclude=[result.ids[0, :2].tolist(), []])
    assert without.ids[0].tolist()[0] == int(result.ids[0, 2])


def test_a_taken_folder_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railsearch.recommender.fitted.train_model", lambda *_, **__: pytest.fail("it trains"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match="mine already exists"):
        Recommender.fit(WORLD, small_recipe(), save_to=tmp_path / "mine")
    with pytest.raises(InvalidInputError, match="holds other files than a railsearch recommender"):
        Recommender.fit(WORLD, small_recipe(), save_to=tmp_path / "mine", overwrite=True)


def test_sizes_that_no_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't allocate memory: you tried to allocate 13194139533312 bytes\nat ...")

    monkeypatch.setattr("railsearch.recommender.fitting.build_encoder", fail)
    with pytest.raises(InvalidInputError, match=r"cannot be built \(can't allocate .* bytes\); choose smaller sizes"):
        Recommender.fit(WORLD, small_recipe())


def test_a_repr_says_what_it_is(recommender: Recommender) -> None:
    assert repr(recommender).endswith(" 40 items)")
    assert recommender.recipe.encoder.kind in repr(recommender)


def test_names_and_folders_in_place_of_objects_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"recipe is 'cpu/sasrec'; give a Recipe: Recipe\.read reads one"):
        Recommender.fit(WORLD, "cpu/sasrec")
    with pytest.raises(InvalidInputError, match=r"start is '.*model'; give a Recommender: Recommender\.load reads"):
        Recommender.fit(WORLD, start=str(tmp_path / "model"))
    with pytest.raises(InvalidInputError, match="interactions is 'data/shop'; read_prepared reads a prepared folder"):
        Recommender.fit("data/shop")
