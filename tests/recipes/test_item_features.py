"""Recommenders that read the content of items: training, saving, warm starts, and columns that cannot be read."""

from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Recommender
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.recommender import Recipe
from railsearch.recommender.features import read_features
from tests.support.content_worlds import COLUMN, NUM_ITEMS, NUM_KINDS, content_events, content_items, content_recipe
from tests.support.training_worlds import small_recipe

ITEMS = content_items()
EVENTS = content_events(ITEMS)


@pytest.mark.parametrize(("encoder", "item_ids"), [("sasrec", True), ("hstu", False)])
def test_a_loaded_model_has_its_features(tmp_path: Path, encoder: str, item_ids: bool) -> None:
    recommender = Recommender.fit(EVENTS, content_recipe(encoder, item_ids=item_ids))
    assert recommender.items.columns == ["item", "title"]
    assert recommender.model.encoder.item_table.features.shape == (NUM_ITEMS, NUM_KINDS)
    assert recommender.model.encoder.item_table.has_ids is item_ids
    recommender.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.fingerprint == recommender.fingerprint
    asked = [[0, 4, 8], [1, 5]]
    assert loaded.recommend(histories=asked, k=5).equals(recommender.recommend(histories=asked, k=5))
    assert loaded.evaluate(EVENTS).metrics == recommender.card.metrics


def test_content_alone_finds_items_of_the_same_kind() -> None:
    recommender = Recommender.fit(EVENTS, content_recipe(item_ids=False, epochs=6))
    found = recommender.recommend(histories=[[0, 4, 8], [1, 5, 9]], k=5)
    kinds = [item % NUM_KINDS for item in found["item"]]
    assert kinds == [0] * 5 + [1] * 5


def test_a_warm_start_keeps_projection_and_rows(tmp_path: Path) -> None:
    start = Recommender.fit(EVENTS, content_recipe())
    more = content_items(num_items=NUM_ITEMS + 4)
    continued = Recommender.fit(content_events(more), content_recipe(epochs=0), start=start)
    old, new = (each.model.encoder.item_table for each in (start, continued))
    torch.testing.assert_close(new.every()[:NUM_ITEMS], old.every(), atol=1e-5, rtol=1e-4)
    assert torch.equal(new.feature_mean, old.feature_mean)
    with pytest.raises(InvalidInputError, match=r"encoder.feature_dim is None but the start has 4"):
        Recommender.fit(EVENTS, small_recipe(similarity="cosine"), start=start)


def test_a_run_with_other_features_is_another_run(tmp_path: Path) -> None:
    recipe = content_recipe(epochs=1)
    Recommender.fit(EVENTS, recipe, folder=tmp_path / "run")
    others = content_events(ITEMS.with_columns(pl.col(COLUMN).list.reverse()))
    with pytest.raises(InvalidInputError, match="features"):
        Recommender.fit(others, recipe, folder=tmp_path / "run")


def changed(item: int, value: list[float | None] | None) -> pl.DataFrame:
    values = ITEMS[COLUMN].to_list()
    values[item] = value
    return ITEMS.with_columns(pl.Series(COLUMN, values))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (ITEMS.drop(COLUMN), r"is 'content' but the table of items has no such column; its columns are: title"),
        (ITEMS.drop(COLUMN, "title"), r"its columns are: none"),
        (ITEMS.with_columns(pl.lit(1.0).alias(COLUMN)), r"column 'content' holds Float64 values; give a list"),
        (ITEMS.with_columns(pl.lit(["a"]).alias(COLUMN)), r"holds List\(String\) values; give a list of numbers"),
        (ITEMS.with_columns(pl.lit([], dtype=pl.List(pl.Float64)).alias(COLUMN)), r"holds empty lists"),
        (changed(3, None), r"of item 3 has no value \(1 such items of 40\); give features for every item"),
        (changed(4, [1.0]), r"of item 4 differs in length from the first item, which has 4 numbers"),
        (changed(5, [1.0, 2.0, None, 3.0]), r"of item 5 has a value that is missing or not finite"),
        (changed(6, [1.0, 2.0, float("inf"), 3.0]), r"of item 6 has a value that is missing or not finite"),
        (changed(7, [1.0, 2.0, 1e300, 3.0]), r"of item 7 has a value that is missing or not finite"),
        (ITEMS.filter(pl.col("item") != 9), r"of item 9 has no value"),
    ],
)
def test_refuses_a_column_that_holds_no_features(items: pl.DataFrame, message: str) -> None:
    events = pl.DataFrame({"user": [1] * 10, "item": list(range(10)), "timestamp": list(range(10))})
    with pytest.raises(InvalidInputError, match=message):
        Recommender.fit(type(EVENTS).from_frame(events, catalogue=items), content_recipe())


def test_reads_lists_and_arrays_of_any_number() -> None:
    items = pl.DataFrame({"item": [1, 2], "a": [[1, 2], [3, 4]], "b": [[1.5, 2.0], [3.0, 4.0]]})
    assert read_features(items, "a").tolist() == [[1, 2], [3, 4]]
    fixed = items.with_columns(pl.col("b").cast(pl.Array(pl.Float32, 2)))
    assert read_features(fixed, "b").tolist() == [[1.5, 2.0], [3.0, 4.0]]


def test_a_recipe_needs_ids_or_features() -> None:
    with pytest.raises(InvalidInputError, match="item_ids is false but item_features names no column"):
        Recipe(encoder={"kind": "sasrec", "item_ids": False})


def test_a_folder_without_its_features_is_refused(tmp_path: Path) -> None:
    recommender = Recommender.fit(EVENTS, content_recipe(epochs=0))
    recommender.save(tmp_path / "model")
    plain = Recommender.fit(EVENTS, small_recipe(similarity="cosine", epochs=0))
    plain.recipe = recommender.recipe
    plain.save(tmp_path / "plain")
    with pytest.raises(ModelFolderError, match=r"holds no encoder.item_table.features"):
        Recommender.load(tmp_path / "plain")
