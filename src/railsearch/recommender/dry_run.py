"""A dry run: what the training of a recommender will take, from a few steps; nothing is written."""

from pathlib import Path

from railsearch.data import Split, Time
from railsearch.foundation.inputs import as_path
from railsearch.recommender.events import InteractionsLike
from railsearch.recommender.fitting import plan_run
from railsearch.recommender.recipe import Recipe
from railsearch.recommender.recommender import Recommender
from railsearch.recommender.updating import TrainedModel, plan_training
from railsearch.training.estimate import RunEstimate, estimate_run
from railsearch.training.run_folder import check_run_folder

MOST_USERS = 256
"""Users that the one validation ranks."""


def dry_run(
    interactions: InteractionsLike,
    recipe: Recipe | None = None,
    *,
    split: Split | None = None,
    start: Recommender | None = None,
    since: Time | None = None,
    folder: str | Path | None = None,
) -> RunEstimate:
    """Estimate time, memory and disk space of `Recommender.fit` with these arguments.

    It runs a few steps of training and a small validation, and writes nothing. The estimate is as good as the machine
    is quiet: a run that shares its cores takes longer.

    Args:
        interactions: as in `Recommender.fit`.
        recipe: as in `Recommender.fit`.
        split: as in `Recommender.fit`.
        start: as in `Recommender.fit`.
        since: as in `Recommender.fit`.
        folder: as in `Recommender.fit`; it is checked, and the number of cosine epochs of a run in it counts.

    >>> import polars as pl
    >>> events = pl.DataFrame({"user": [u for u in range(8) for _ in range(5)], "item": [i % 7 for i in range(40)]})
    >>> estimate = dry_run(events.with_row_index("timestamp"), Recipe(training={"epochs": 3}))
    >>> estimate.epochs, estimate.cosine_epochs, estimate.steps_per_epoch
    (3, 2, 1)
    """
    target = None if folder is None else as_path(folder)
    if target is not None:
        check_run_folder(target)
    trained = None
    if start is not None:
        trained = TrainedModel(start.model, start.recipe, start.items, start.user_ids, start.fingerprint)
    recipe, split = plan_training(interactions, recipe, split=split, start=trained, since=since)
    most = min(recipe.training.validation_users, len((split.validation or split.test).users))
    ranked = min(MOST_USERS, most)
    small = recipe.model_copy(update={"training": recipe.training.model_copy(update={"validation_users": ranked})})
    planned = plan_run(small, split, start=trained, folder=target)
    return estimate_run(
        planned.task, planned.config, first_phase=planned.first_phase, validation_share=ranked / max(1, most)
    )
