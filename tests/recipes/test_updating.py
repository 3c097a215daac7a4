"""Updates: a trained recommender goes on with new events, items and users, and its rows keep their meaning."""

from pathlib import Path

import polars as pl
import pytest
import torch
from torch import Tensor

from railsearch import Recommender
from railsearch.data import Interactions, leave_last_out, train_since, write_prepared
from railsearch.errors import FingerprintError, InvalidInputError
from railsearch.recipes import Recipe, update_recipe
from railsearch.training import TrainingConfig
from railsearch.training.tasks import histories
from railsearch.training.tasks.histories import NextItemTask
from tests.support.commands import run
from tests.support.training_worlds import ENCODERS, random_walks, small_recipe

LATER = 2 * 10**9


def log_of(interactions: Interactions) -> pl.DataFrame:
    """Return events as a table with text as ids."""
    return pl.DataFrame(
        {
            "user": [f"u{user:02}" for user in interactions.users.tolist()],
            "item": [f"i{item:02}" for item in interactions.items.tolist()],
            "timestamp": interactions.timestamps.numpy(),
        }
    )


FIRST = log_of(random_walks())
SECOND = pl.concat(
    [
        FIRST.filter(pl.col("item") != "i39"),  # an item that is no longer mentioned
        pl.DataFrame(
            {
                "user": [user for user in ("u03", "u07", "a new user") for _ in range(5)],
                "item": ["i01", "a new item", "i02", "i05", "i06"] * 3,
                "timestamp": [LATER + place for place in range(15)],
            }
        ),
    ]
)


@pytest.fixture(scope="module")
def first() -> Recommender:
    return Recommender.fit(FIRST, small_recipe(similarity="mixture-user"))


@pytest.fixture(scope="module")
def second(first: Recommender) -> Recommender:
    return Recommender.fit(SECOND, start=first, since=LATER - 1)


def test_rows_are_kept_and_tables_grow(first: Recommender, second: Recommender) -> None:
    assert second.items["item"].to_list() == [*first.items["item"], "a new item"]
    assert second.user_ids.to_list() == [*first.user_ids, "a new user"]
    assert second.recipe.similarity.user_table_size == 51
    start = Recommender.fit(SECOND, update_recipe(first.recipe).with_changes(["training.epochs=0"]), start=first)
    history = [["i01", "i02"]]
    before, after = first.search(history, k=40), start.search(history, k=41)
    is_old = after.ids != 40
    assert torch.equal(after.ids[is_old], before.ids.flatten())
    assert torch.allclose(after.scores[is_old], before.scores.flatten(), atol=1e-6)


def test_an_update_has_its_own_settings_and_a_protocol(first: Recommender, second: Recommender) -> None:
    assert second.recipe.training == first.recipe.training.model_copy(
        update={"epochs": 5, "learning_rate": 5e-4, "patience": 2}
    )
    assert second.recipe.encoder == first.recipe.encoder
    assert second.card.counts["train_events"] == 8  # 2 of 5 events are held out, and a first event has no history
    assert "trained on the 8 events after 2033-05-18T03:33:19Z" in second.card.protocol
    assert "3 for validation, 3 for test" in second.card.protocol


def test_the_updated_model_is_used_like_any_other(second: Recommender, tmp_path: Path) -> None:
    second.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model", interactions=SECOND)
    assert loaded.evaluate(train_since(leave_last_out(Interactions.from_frame(SECOND)), LATER - 1)).metrics == (
        pytest.approx(second.card.metrics)
    )
    users = ["a new user", "u03", "u20"]
    found = loaded.recommend(users, k=5)
    assert found.equals(second.recommend(users, k=5))
    popular = loaded.recommend(histories=[[]], k=41, cold_start="popular")["item"].to_list()
    assert popular.index("a new item") < popular.index("i39")  # which has no event in the data of the update


def test_integer_ids_that_no_longer_ascend(tmp_path: Path) -> None:
    """New items have smaller ids than old ones; searches and tables still name the right items."""
    old = random_walks(item_name=lambda item: item + 100)
    recommender = Recommender.fit(old, small_recipe(similarity="cosine", epochs=1))
    table = pl.DataFrame(
        {"user": [1, 1, 1, 1], "item": [100, 7, 101, 3], "timestamp": [LATER, LATER + 1, LATER + 2, LATER + 3]}
    )
    updated = Recommender.fit(table, start=recommender)
    assert updated.items["item"].to_list() == [*range(100, 140), 3, 7]
    updated.build_index(tmp_path / "index")
    found = updated.recommend(histories=[[7, 100]], k=40)
    model = updated.model
    queries = updated.encode([[7, 100]])
    scores = model.similarity.score(
        model.similarity.query_parts(queries), model.similarity.item_parts(model.encoder.embed_items())
    )[0]
    expected = dict(zip(updated.items["item"].to_list(), scores.tolist(), strict=True))
    assert set(found["item"]) == set(expected) - {7, 100}
    assert found["score"].to_list() == pytest.approx([expected[item] for item in found["item"]], abs=1e-5)
    popular = updated.recommend(histories=[[]], k=5, cold_start="popular")
    assert popular["item"].to_list() == [7, 100, 3, 101, 102]


def test_an_index_of_the_model_before_is_refused(first: Recommender, second: Recommender, tmp_path: Path) -> None:
    first.build_index(tmp_path / "index")
    first.index = None
    with pytest.raises(FingerprintError, match="build a new index with this one: training and updates change"):
        second.open_index(tmp_path / "index")


def test_a_step_trains_on_late_targets_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = random_walks(lengths=(1, 20))
    split = train_since(leave_last_out(world), int(world.timestamps.median()))
    recipe = small_recipe(similarity="cosine")
    model = Recommender.fit(world, recipe.with_changes(["training.epochs=0"])).model
    trained: list[Tensor] = []

    def recording(*arguments: object, **options: object) -> object:
        trained.append(arguments[1])  # type: ignore[arg-type]
        return drawn(*arguments, **options)  # type: ignore[arg-type]

    drawn = histories.draw_contrast
    monkeypatch.setattr(histories, "draw_contrast", recording)
    task = NextItemTask(model, split, recipe.training)
    examples = torch.arange(task.num_examples)
    task.step(histories.Batch(examples, examples, torch.Generator().manual_seed(0), 0))
    longest = ENCODERS["sasrec"]["max_length"]
    expected = [
        item
        for first, end in zip(split.first_targets.tolist(), split.train_ends.tolist(), strict=True)
        for item in world.items[max(first, end - longest) : max(first, end)].tolist()
    ]
    assert torch.cat(trained).tolist() == expected


def test_a_time_before_all_events_changes_nothing() -> None:
    world = random_walks(num_users=20)
    recipe = small_recipe(positions_per_history=3)
    plain, late = (Recommender.fit(world, recipe, since=since) for since in (None, 0))
    for ours, theirs in zip(plain.model.state_dict().values(), late.model.state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    assert plain.card.metrics == pytest.approx(late.card.metrics)


def test_a_split_of_ones_own_is_updated_too(first: Recommender) -> None:
    interactions = Interactions.from_frame(SECOND)
    split = leave_last_out(interactions, has_validation=False)
    recipe = update_recipe(first.recipe).with_changes(["training.epochs=0"])
    own = Recommender.fit(interactions, recipe, split=split, start=first)
    same = Recommender.fit(interactions, recipe.with_changes(["split.has_validation=false"]), start=first)
    assert own.card.metrics == pytest.approx(same.card.metrics)
    assert own.fingerprint == same.fingerprint


def test_items_that_the_data_omits_keep_their_features() -> None:
    def described(table: pl.DataFrame) -> Interactions:
        items = sorted(set(table["item"]))
        catalogue = pl.DataFrame(
            {"item": items, "content": [[float(len(item)), float(ord(item[-1]))] for item in items]}
        )
        return Interactions.from_frame(table, catalogue=catalogue)

    recipe = small_recipe(similarity="cosine", epochs=1).with_changes(["encoder.item_features=content"])
    first = Recommender.fit(described(FIRST), recipe)
    start = Recommender.fit(described(SECOND), recipe.with_changes(["training.epochs=0"]), start=first)
    ours, theirs = (each.model.encoder.item_table.every() for each in (start, first))
    assert len(ours) == 41
    assert torch.allclose(ours[:40], theirs, atol=1e-5)


def test_users_who_share_rows_keep_them() -> None:
    shared = {"user_table_size": 20, "user_table_hashing": True}
    recipe = small_recipe(similarity="mixture-user", epochs=1)
    hashed = Recipe(**{**recipe.model_dump(), "similarity": recipe.similarity.model_dump() | shared})
    first = Recommender.fit(FIRST, hashed)
    second = Recommender.fit(SECOND, start=first, since=LATER - 1)
    assert second.recipe.similarity.user_table_size == 20
    with pytest.raises(InvalidInputError, match="user_table_size is 21 but the start has 20, and users that share"):
        Recommender.fit(SECOND, hashed.with_changes(["similarity.user_table_size=21"]), start=first)


def test_epochs_as_a_cosine_are_over() -> None:
    recipe = update_recipe(Recipe(training=TrainingConfig(epochs=9, patience=2, schedule="cosine", warmup_share=0.1)))
    assert (recipe.training.epochs, recipe.training.patience, recipe.training.schedule) == (5, 2, "constant")


def test_prepared_data_of_a_longer_log_and_the_command_line(tmp_path: Path) -> None:
    """The rows of prepared data change with new items, which sort before old ones; those of the model do not."""
    for name, table in (("week-1", FIRST), ("week-2", SECOND)):
        table.write_csv(tmp_path / f"{name}.csv")
        run("data", "prepare", "own", "--from", tmp_path / f"{name}.csv", "--to", tmp_path / name)
    recipe = "encoder = {kind = 'sasrec', dim = 8, max_length = 8}\nsimilarity.kind = 'cosine'\ntraining.epochs = 1\n"
    (tmp_path / "small.toml").write_text(recipe)
    run("train", tmp_path / "small.toml", "--data", tmp_path / "week-1", "--out", tmp_path / "first")
    model = tmp_path / "first" / "model"
    update = ("train", "--from", model, "--data", tmp_path / "week-2")
    run(*update, "--since", "2033-05-18", "--out", tmp_path / "second", "--set", "training.epochs=1")
    first, second = (Recommender.load(tmp_path / name / "model") for name in ("first", "second"))
    assert second.items["item"].to_list() == [*first.items["item"], "a new item"]
    assert second.recipe.training.epochs == 1
    assert second.recipe.training.learning_rate == 5e-4
    write_prepared(Interactions.from_frame(SECOND.drop("timestamp"), timestamp=None), tmp_path / "timeless", name="x")
    wrong = {
        "no event is later than since, 2040-": [*update, "--since", "2040-01-01"],
        "give seconds or an ISO date": [*update, "--since", "soon"],
        "has no times": [*update[:3], "--data", tmp_path / "timeless", "--since", 5],
        "neither a recipe nor a model to update": ["train", "--data", tmp_path / "week-2"],
        "only a recommender can be updated": ["train", "--from", tmp_path / "week-2"],
    }
    for message, arguments in wrong.items():
        with pytest.raises(InvalidInputError, match=message):
            run(*arguments, "--out", tmp_path / "third")
