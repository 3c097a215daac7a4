"""The plots of a model card: quality by segment of users, and the course of training."""

import importlib.util
from pathlib import Path

from railsearch.folders import SEGMENTS_PLOT, TRAINING_PLOT, ModelCard

FEWEST_USERS = 100
"""Test users. The segments of fewer hold a handful of users each, and a plot of them would show chance."""


def draw_plots(card: ModelCard, folder: Path) -> list[str]:
    """Draw the plots of a card into a folder, and return their names; none without the extra `plot`."""
    num_users = sum(each["num_queries"] for each in card.segments if each["by"] == "history length")
    if num_users < FEWEST_USERS or importlib.util.find_spec("matplotlib") is None:
        return []
    from railsearch.benchmark.plot import plot_segments, plot_training  # noqa: PLC0415  (slow to import)

    metric = next(iter(card.segments[0]["metrics"]))
    plot_segments(card.segments, metric=metric, overall=card.metrics.get(metric), path=folder / SEGMENTS_PLOT)
    drawn = [SEGMENTS_PLOT]
    if card.num_epochs > 1:
        plot_training(card.epochs, best_epoch=card.best_epoch, path=folder / TRAINING_PLOT)
        drawn.append(TRAINING_PLOT)
    return drawn
