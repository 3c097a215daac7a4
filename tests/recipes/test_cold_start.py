"""Users without a history: popular items if that is asked for, with every filter, from memory and from a folder."""

from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from railsearch import Recommender
from railsearch.data import leave_last_out
from railsearch.errors import InvalidInputError, ModelFolderError, NotEnoughItemsError
from railsearch.recommender import folder as recommender_folder
from railsearch.recommender import recommending
from tests.support.naive_baselines import train_histories
from tests.support.training_worlds import random_walks, small_recipe

WORLD = random_walks(item_name=lambda item: 10 * item)  # ids are not rows


def count_events() -> dict[int, int]:
    counts = dict.fromkeys(WORLD.item_ids, 0)
    for rows in train_histories(leave_last_out(WORLD)):
        for row in rows:
            counts[WORLD.item_ids[row]] += 1
    return counts


COUNTS = count_events()
ORDER = sorted(COUNTS, key=lambda item: (-COUNTS[item], item))


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit(WORLD, small_recipe("sasrec", "mixture-user", epochs=1))


@pytest.fixture
def saved(recommender: Recommender, tmp_path: Path) -> Path:
    recommender.save(tmp_path / "model")
    return tmp_path / "model"


def seal_again(folder: Path) -> None:
    """Write a config that states the files as they are now."""
    config = recommender_folder.FORMAT.read(folder)
    recommender_folder.FORMAT.write(folder, {name: value for name, value in config.items() if name != "files"})


def items_of(table: pl.DataFrame, user: object) -> list[object]:
    return table.filter(pl.col("user") == user)["item"].to_list()


def test_unknown_users_get_popular_items_among_others(
    recommender: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recommender.recommend([3, 999, 4, 998, 997], k=4, cold_start="popular")
    assert found["user"].to_list() == [user for user in (3, 999, 4, 998, 997) for _ in range(4)]
    for user in (997, 998, 999):
        own = found.filter(pl.col("user") == user)
        assert own["item"].to_list() == ORDER[:4]
        assert own["score"].to_list() == [float(COUNTS[item]) for item in ORDER[:4]]
        assert own["rank"].to_list() == [1, 2, 3, 4]
    known = found.filter(pl.col("user").is_in([3, 4]))
    assert_frame_equal(known, recommender.recommend([3, 4], k=4))
    monkeypatch.setattr(recommending, "QUERIES_PER_SEARCH", 2)  # the last batch has no user with a history
    assert_frame_equal(recommender.recommend([3, 999, 4, 998, 997], k=4, cold_start="popular"), found)


def test_known_users_are_answered_as_ever(recommender: Recommender) -> None:
    assert_frame_equal(recommender.recommend([3, 4], k=4, cold_start="popular"), recommender.recommend([3, 4], k=4))


@pytest.mark.parametrize(
    ("histories", "settings"),
    [
        ({"ann": [], "bob": [10, 20]}, {}),
        ({"ann": [7, 13], "bob": [10, 20, 7]}, {"unknown_items": "ignore"}),
        (
            pl.DataFrame({"user": ["ann", "bob", "bob"], "item": [7, 10, 20], "timestamp": [1, 2, 3]}),
            {"unknown_items": "ignore"},
        ),
    ],
)
def test_histories_without_known_items(recommender: Recommender, histories: object, settings: dict) -> None:
    found = recommender.recommend(histories=histories, k=3, cold_start="popular", **settings)
    assert items_of(found, "ann") == ORDER[:3]
    assert items_of(found, "bob") == recommender.recommend(histories=[[10, 20]], k=3)["item"].to_list()
    with pytest.raises(InvalidInputError, match=r'has no .*; there is nothing.* with cold_start="popular"'):
        recommender.recommend(histories=histories, k=3, **settings)


def test_unknown_items_are_still_refused(recommender: Recommender) -> None:
    with pytest.raises(InvalidInputError, match="has item 7, which the model does not know"):
        recommender.recommend(histories=[[7]], k=3, cold_start="popular")


def test_filters_hold(recommender: Recommender) -> None:
    late = [item for item in ORDER if item >= 300]  # 10 items
    mask = torch.tensor([item >= 300 for item in WORLD.item_ids])
    for allow in ("item >= 300", pl.col("item") >= 300, late, mask, set(late) | {7}):
        found = recommender.recommend(histories=[[], [10]], k=4, allow=allow, cold_start="popular")
        assert items_of(found, 0) == late[:4]
        assert set(items_of(found, 1)) <= set(late)
    with pytest.raises(NotEnoughItemsError, match="k is 11 but only 10 items of the model may be recommended"):
        recommender.recommend(histories=[[], [10]], k=11, allow=late, cold_start="popular")
    padded = recommender.recommend(histories=[[], [300]], k=11, allow=late, pad=True, cold_start="popular")
    assert items_of(padded, 0) == late
    assert sorted(items_of(padded, 1)) == sorted(set(late) - {300})
    with pytest.raises(NotEnoughItemsError, match="k is 41 but there are 40 items"):
        recommender.recommend(histories=[[]], k=41, pad=True, cold_start="popular")


def test_the_index_decides_which_items_there_are(saved: Path, tmp_path: Path) -> None:
    loaded = Recommender.load(saved)
    index = loaded.build_index(tmp_path / "index")
    index.remove([ORDER[0]])
    index.add(loaded.model.encoder.embed_items().detach()[:1], [5], metadata=pl.DataFrame({"item": [5]}))
    found = loaded.recommend(histories=[[], [10]], k=39, cold_start="popular", pad=True)
    assert items_of(found, 0) == ORDER[1:]  # without the item that was added, which has no count
    assert set(items_of(found, 1)) == {5, *ORDER[1:]} - {10}


def test_a_folder_keeps_the_counts(recommender: Recommender, saved: Path) -> None:
    loaded = Recommender.load(saved)
    assert torch.equal(loaded.item_counts, recommender.item_counts)
    assert loaded.fingerprint == recommender.fingerprint
    assert loaded.recommend(histories=[[]], k=40, cold_start="popular")["item"].to_list() == ORDER


def test_an_older_folder_has_no_counts(saved: Path, tmp_path: Path) -> None:
    (saved / "popularity.parquet").unlink()
    seal_again(saved)
    loaded = Recommender.load(saved)
    assert len(loaded.recommend(histories=[[10]], k=3)) == 3
    with pytest.raises(InvalidInputError, match="was saved without the popularity of its items"):
        loaded.recommend(histories=[[10]], k=3, cold_start="popular")
    loaded.save(tmp_path / "again")
    assert not (tmp_path / "again" / "popularity.parquet").exists()


@pytest.mark.parametrize(
    "counts",
    [
        pl.DataFrame({"events": [1, 2]}),
        pl.DataFrame({"events": [-1] * 40}),
        pl.DataFrame({"events": [None, *range(39)]}),
        pl.DataFrame({"events": [0.5] * 40}),
        pl.DataFrame({"other": [1] * 40}),
    ],
)
def test_counts_that_are_none_are_refused(saved: Path, counts: pl.DataFrame) -> None:
    counts.write_parquet(saved / "popularity.parquet")
    seal_again(saved)
    with pytest.raises(ModelFolderError, match="is inconsistent"):
        Recommender.load(saved)


def test_counts_are_those_of_the_training_events_only(recommender: Recommender) -> None:
    assert dict(zip(WORLD.item_ids, recommender.item_counts.tolist(), strict=True)) == COUNTS
    assert int(recommender.item_counts.sum()) == leave_last_out(WORLD).num_train_events == len(WORLD) - 2 * 50
