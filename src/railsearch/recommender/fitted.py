"""A recommender that was just trained: its model, its items, and the facts of its model card."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from railsearch.data import Interactions, Split, Time
from railsearch.evaluation import analyze_test
from railsearch.folders import ModelCard
from railsearch.models import SequentialModel
from railsearch.recommender.card import describe_recommender
from railsearch.recommender.events import InteractionsLike
from railsearch.recommender.features import items_of
from railsearch.recommender.fitting import train_model
from railsearch.recommender.recipe import Recipe
from railsearch.recommender.updating import TrainedModel, plan_training
from railsearch.training import FitReport, TeacherLike
from railsearch.training.processes import Processes

if TYPE_CHECKING:
    from polars import DataFrame, Series

LISTED_ITEMS = 10
"""Items that are recommended to each test user for the model card."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedRecommender:
    """The result of training; the fields are those of `Recommender`."""

    model: SequentialModel
    recipe: Recipe
    card: ModelCard
    items: "DataFrame"
    user_ids: "Series | None"
    item_counts: Tensor  # (N,)
    interactions: Interactions
    report: FitReport


def fit_recommender(
    interactions: InteractionsLike,
    recipe: Recipe | None,
    *,
    split: Split | None,
    start: TrainedModel | None,
    since: Time | None,
    folder: Path | None,
    processes: Processes,
    teacher: TeacherLike | None,
    show_progress: bool | None,
) -> FittedRecommender:
    """Train a model, and measure it on the test items of the split; see `Recommender.fit`."""
    recipe, split = plan_training(interactions, recipe, split=split, start=start, since=since)
    known = split.interactions
    model, report = train_model(
        recipe, split, start=start, folder=folder, processes=processes, teacher=teacher, show_progress=show_progress
    )
    analysis = analyze_test(model, split, k=min(LISTED_ITEMS, known.num_items)) if processes.is_first else None
    return FittedRecommender(
        model=model,
        recipe=recipe,
        card=describe_recommender(split, recipe, report, analysis),
        items=items_of(recipe, known),
        user_ids=known.user_ids if model.similarity.takes_user_ids else None,
        item_counts=split.count_items(),
        interactions=known,
        report=report,
    )
