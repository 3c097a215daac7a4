"""An update: training goes on from a trained recommender with new events, new items and new users."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from railsearch.data import Interactions, Split, Time, continue_rows, continue_split, train_since
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.recommender.events import InteractionsLike, as_interactions, as_split, split_of
from railsearch.recommender.recipe import Recipe
from railsearch.recommender.requests import find_rows
from railsearch.similarity import MixtureConfig

if TYPE_CHECKING:
    from polars import DataFrame, Series

UPDATE_SETTINGS: dict[str, object] = {
    "epochs": 5,
    "learning_rate": 5e-4,
    "schedule": "constant",
    "warmup_share": 0.0,
    "patience": 2,
}
"""Settings of training that an update has by default, in place of those of the model's recipe."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A trained model to start from, with its recipe, items, users of its user table, and fingerprint."""

    model: SequentialModel
    recipe: Recipe
    items: "DataFrame"
    user_ids: "Series | None"
    fingerprint: str
    item_counts: Tensor | None = None  # (N,) training events of each item


def update_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe of a model for an update: a few epochs at a constant, lower learning rate.

    `benchmarks/weekly_updates.py` measured these settings.

    >>> recipe = update_recipe(Recipe(training={"epochs": 100, "num_negatives": 64}))
    >>> recipe.training.epochs, recipe.training.learning_rate, recipe.training.num_negatives
    (5, 0.0005, 64)
    """
    training = recipe.training.model_dump(exclude={"cosine_epochs", "teacher"}) | UPDATE_SETTINGS
    return Recipe(**{**recipe.model_dump(), "training": training})


def plan_training(
    interactions: InteractionsLike,
    recipe: Recipe | None,
    *,
    split: Split | None,
    start: TrainedModel | None,
    since: Time | None,
) -> tuple[Recipe, Split]:
    """Return the recipe and the split of a training run; with a start, under the rows of its items and users.

    Args:
        interactions: the events.
        recipe: settings; by default, those of an update of the start, or of a new recommender.
        split: a split of the interactions; by default, the one that the recipe states.
        start: a trained model whose items and users keep their rows.
        since: train only on events later than this.
    """
    if recipe is not None and not isinstance(recipe, Recipe):
        raise InvalidInputError(
            f"recipe is {recipe!r:.80}; give a Recipe: Recipe.read reads one from a TOML file, and recipe_file finds "
            "those that come with railsearch by their names."
        )
    known = as_interactions(interactions)
    if recipe is None:
        recipe = Recipe() if start is None else update_recipe(start.recipe)
    if start is not None:
        moved = _with_rows_of(known, start)
        split = None if split is None else continue_split(split_of(known, split, has_validation=True), moved)
        recipe = _with_grown_table(recipe, start, moved.num_users)
        known = moved
    planned = split_of(known, split, has_validation=recipe.split.has_validation)
    return recipe, planned if since is None else train_since(planned, since)


def as_tested(
    data: Split | InteractionsLike | str | Path, recipe: Recipe, items: "DataFrame", user_ids: "Series | None"
) -> tuple[Split, Tensor | None]:
    """Return the split to evaluate a model on, and the row of its user table (U,) for each user of the split.

    Args:
        data: as in `Recommender.evaluate`.
        recipe: states how interactions are split.
        items: the items of the model, by row.
        user_ids: the users of its user table, by row; None without such a table.
    """
    split = known_split(as_split(data, has_validation=recipe.split.has_validation), items)
    return split, None if user_ids is None else find_rows(split.interactions.user_ids, user_ids)


def known_split(split: Split, items: "DataFrame") -> Split:
    """Return a split under the item rows of a model, and refuse one with an item that the model does not know."""
    given = split.interactions
    is_unknown = find_rows(given.item_ids, items["item"]) < 0  # (N,)
    if bool(is_unknown.any()):
        raise InvalidInputError(
            f"the split has {given.num_items} items, of which {int(is_unknown.sum())} are not among the {len(items)} "
            f"of this model, such as {given.item_ids[int(is_unknown.nonzero()[0])]!r}; give data with items of the "
            "model."
        )
    if given.item_ids.equals(items["item"]):
        return split
    return continue_split(split, continue_rows(given, items=items))


def _with_rows_of(interactions: Interactions, start: TrainedModel) -> Interactions:
    if bool((find_rows(interactions.item_ids, start.items["item"]) < 0).all()):
        raise InvalidInputError(
            f"the start knows none of the {interactions.num_items:,} items (its first is {start.items['item'][0]!r}, "
            f"the data's first is {interactions.item_ids[0]!r}); start from a model of the same items."
        )
    return continue_rows(interactions, items=_items_with_features(start, interactions), user_ids=start.user_ids)


def _items_with_features(start: TrainedModel, interactions: Interactions) -> "DataFrame":
    """Return the items of the start with the features that its model keeps, for items that the data omits."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    column, table = start.recipe.encoder.item_features, start.model.encoder.item_table
    features = table.given_features()
    if column is None or features is None:
        return start.items
    values = pl.Series(column, features.cpu().numpy()).arr.to_list()
    given = interactions.item_columns
    if given is not None and column in given.columns and isinstance(given[column].dtype, (pl.List, pl.Array)):
        values = values.cast(given[column].dtype)
    return start.items.with_columns(values)


def _with_grown_table(recipe: Recipe, start: TrainedModel, num_users: int) -> Recipe:
    """Return the recipe with a user table that has a row for every user; users that share rows need no more."""
    config, before = recipe.similarity, start.recipe.similarity
    if not isinstance(config, MixtureConfig) or config.user_table_size is None:
        return recipe
    if not config.user_table_hashing:
        similarity = config.model_copy(update={"user_table_size": max(config.user_table_size, num_users)})
        return recipe.model_copy(update={"similarity": similarity})
    size = before.user_table_size if isinstance(before, MixtureConfig) else None
    if size is not None and size != config.user_table_size:
        raise InvalidInputError(
            f"similarity.user_table_size is {config.user_table_size} but the start has {size}, and users that share "
            f"rows (user_table_hashing) find theirs by that size; set it to {size}."
        )
    return recipe
