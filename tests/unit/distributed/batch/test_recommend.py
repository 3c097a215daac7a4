"""Recommendations for all users in parts: those of one call, from histories that are read part by part."""

from pathlib import Path

import polars as pl
import pytest

from railsearch.data import write_prepared
from railsearch.data.interactions.user_parts import UserParts
from railsearch.distributed.batch import recommend_all
from railsearch.errors import DataFolderError, FingerprintError, InvalidInputError, JobFolderError, NotEnoughItemsError
from railsearch.recommender import Recommender
from tests.support.batch_worlds import InterruptedJobError, StoppingRunner, contents, read_parts
from tests.support.training_worlds import random_walks, small_recipe


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recommend")
    world = random_walks(user_name=lambda user: f"user-{user}")
    write_prepared(world, folder / "data", name="walks")
    recommender = Recommender.fit(world, small_recipe("hstu", "mixture-user", epochs=1))
    recommender.save(folder / "model")
    recommender.build_index(folder / "index", show_progress=False)
    return folder


def run(shared: Path, output: Path, k: int = 4, **options: object) -> pl.DataFrame:
    given = {"users_per_part": 16, "show_progress": False, **options}
    recommend_all(shared / "model", shared / "data", output, k, **given)
    return read_parts(output)


def assert_alike(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Compare recommendations; histories that are encoded in other batches may be rounded differently."""
    assert found.drop("score").equals(expected.drop("score"))
    assert found["score"].to_list() == pytest.approx(expected["score"].to_list(), rel=1e-5)


def test_recommendations_are_those_of_one_call(shared: Path, tmp_path: Path) -> None:
    world = random_walks(user_name=lambda user: f"user-{user}")
    recommender = Recommender.load(shared / "model", interactions=world)
    found = run(shared, tmp_path / "plain")
    assert len(contents(tmp_path / "plain")) == 4
    assert_alike(found, recommender.recommend(world.user_ids, 4))
    of_index = run(shared, tmp_path / "index", index=shared / "index", allow="item >= 10", filter_viewed=False)
    assert_alike(of_index, recommender.recommend(world.user_ids, 4, allow="item >= 10", filter_viewed=False))


def test_rules_are_those_of_one_call(shared: Path, tmp_path: Path) -> None:
    world = random_walks(user_name=lambda user: f"user-{user}")
    recommender = Recommender.load(shared / "model", interactions=world)
    rules = {"exclude": [1, 2, 3], "diversity": 0.4, "pool": 20}
    assert_alike(run(shared, tmp_path / "rules", **rules), recommender.recommend(world.user_ids, 4, **rules))
    with pytest.raises(JobFolderError, match=r"diversity is '?0.4'? but this job has"):
        run(shared, tmp_path / "rules", **{**rules, "diversity": 0.5})
    with pytest.raises(InvalidInputError, match="max_per names 'genre', which is not a column"):
        run(shared, tmp_path / "other", max_per={"genre": 2})


def test_a_second_run_continues(shared: Path, tmp_path: Path) -> None:
    whole = run(shared, tmp_path / "whole")
    with pytest.raises(InterruptedJobError):
        run(shared, tmp_path / "parts", runner=StoppingRunner(1))
    assert run(shared, tmp_path / "parts").equals(whole)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    with pytest.raises(JobFolderError, match="its filter_viewed is True but this job has False"):
        run(shared, tmp_path / "parts", filter_viewed=False)


def test_wrong_input(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(NotEnoughItemsError, match="k is 41 but there are 40 items"):
        run(shared, tmp_path / "out", 41)
    with pytest.raises(InvalidInputError, match="colour"):
        run(shared, tmp_path / "out", allow="colour = 1")
    with pytest.raises(ValueError, match="does not exist"):
        recommend_all(shared / "model", tmp_path / "data", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_model_is_refused_by_a_worker(shared: Path, tmp_path: Path) -> None:
    class Swapping(StoppingRunner):
        def run(self, task: object, parts: object, on_part: object) -> None:
            other = Recommender.fit(random_walks(seed=1), small_recipe(epochs=1))
            other.save(shared / "model", overwrite=True)
            super().run(task, parts, on_part)

    original = Recommender.load(shared / "model")
    with pytest.raises(FingerprintError, match="but the job started with"):
        run(shared, tmp_path / "out", runner=Swapping(1))
    original.save(shared / "model", overwrite=True)


def test_users_are_cut_by_their_events(shared: Path, tmp_path: Path) -> None:
    world = random_walks(user_name=lambda user: f"user-{user}")
    parts = UserParts.cut(shared / "data", users_per_part=16)
    items = parts.read_items()
    found = [parts.read(part, items) for part in range(parts.num_parts)]
    assert [own.num_users for own in found] == [16, 16, 16, 2]
    assert [user for own in found for user in own.user_ids] == world.user_ids.to_list()
    assert [item for own in found for item in own.items.tolist()] == world.items.tolist()
    assert all(own.has_times and own.num_items == 40 for own in found)
    write_prepared(world, tmp_path / "data", name="walks")
    events = tmp_path / "data" / "interactions.parquet"
    pl.read_parquet(events).reverse().write_parquet(events)
    with pytest.raises(DataFolderError):
        UserParts.cut(tmp_path / "data", users_per_part=16)
