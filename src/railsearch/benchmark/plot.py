"""Plots: hit rate against latency, metrics of several systems, and the quality and training of one model."""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from railsearch.benchmark.report import BenchmarkReport
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.extras import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
BLUE, GRAY = "#2a6f97", "#8a8f98"


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn and written to this path, before the benchmark runs."""
    if importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("matplotlib", "plot")
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"{path} ends in {path.suffix!r}; give a file that ends in {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{path} cannot be written: there is no folder {path.parent}; create it first.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInputError(f"{path} cannot be written; give a file in a folder that you can write to.")


def plot_recall_latency(report: BenchmarkReport, path: Path) -> None:
    """Plot relative hit rate against latency at the first batch size, one point for each strategy."""
    check_plot(path)
    from matplotlib import colormaps  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415  (optional, and slow to import)

    depth = max(report.rows[0].hit_rates)
    batch_size = report.rows[0].latencies[0].batch_size
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    colors = colormaps["turbo"].resampled(len(report.rows))
    for place, row in enumerate(report.rows):
        axes.scatter(
            row.hit_rates[depth],
            row.latencies[0].median_seconds * 1e3,
            color=colors(place),
            marker="o" if row.share_exact == 1.0 else "X",
            s=80,
            label=row.name,
        )
    axes.set_yscale("log")
    axes.set_xlabel(f"HR@{depth} relative to brute force (round: certified exact for every query)")
    axes.set_ylabel(f"median ms for a batch of {batch_size}")
    axes.set_title(
        f"{report.num_items:,} items, {report.num_query_components} x {report.num_item_components} components of "
        f"{report.component_dim}, {report.dtype}\n{report.machine}, kernel {report.kernel}",
        fontsize=9,
    )
    figure.legend(loc="outside right upper")
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=150)


def plot_intervals(
    values: Mapping[str, Sequence[float]],
    intervals: Mapping[str, Sequence[tuple[float, float]]],
    *,
    names: Sequence[str],
    title: str,
    path: Path,
) -> None:
    """Plot the metrics of several systems side by side, each with its confidence interval.

    Args:
        values: the metrics of each system, in the order of `names`.
        intervals: their lower and upper bounds.
        names: names of the metrics.
        title: text above the plot.
        path: the file.
    """
    check_plot(path)
    from matplotlib.figure import Figure  # noqa: PLC0415  (optional, and slow to import)

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(values)
    for number, (system, heights) in enumerate(values.items()):
        places = [place + (number + 0.5) * width - 0.4 for place in range(len(names))]
        below = [max(0.0, height - low) for height, (low, _) in zip(heights, intervals[system], strict=True)]
        above = [max(0.0, high - height) for height, (_, high) in zip(heights, intervals[system], strict=True)]
        axes.bar(places, heights, width, yerr=[below, above], capsize=3, label=system)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("test queries, with intervals of 95 %")
    axes.set_title(title, fontsize=9, wrap=True)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def plot_segments(segments: Sequence[Mapping[str, Any]], *, metric: str, overall: float | None, path: Path) -> None:
    """Plot one metric of each segment of users with its interval, one panel for each property that divides them.

    Args:
        segments: segments as `Segment.to_dict` returns them.
        metric: the metric to plot.
        overall: the metric of all users, drawn as a line.
        path: the file.
    """
    check_plot(path)
    from matplotlib.figure import Figure  # noqa: PLC0415  (optional, and slow to import)

    panels = list(dict.fromkeys(each["by"] for each in segments))
    most = max(sum(each["by"] == by for each in segments) for by in panels)
    figure = Figure(figsize=(4.2 * len(panels), 1.1 + 0.36 * most), layout="constrained")
    shared = figure.subplots(1, len(panels), squeeze=False, sharex=True)[0]
    for axes, by in zip(shared, panels, strict=True):
        own = [each for each in segments if each["by"] == by]
        values = [each["metrics"][metric] for each in own]
        bounds = [each["intervals"][metric] for each in own]
        below = [max(0.0, value - low) for value, (low, _) in zip(values, bounds, strict=True)]
        above = [max(0.0, high - value) for value, (_, high) in zip(values, bounds, strict=True)]
        axes.barh(range(len(own)), values, height=0.62, color=BLUE, alpha=0.85, xerr=[below, above], ecolor="#333333",
                  error_kw={"elinewidth": 1, "capsize": 2})  # fmt: skip
        axes.set_yticks(range(len(own)), [f"{each['segment']}  (n = {each['num_queries']:,})" for each in own])
        axes.set_ylim(most - 0.4, -0.6)
        if overall is not None:
            axes.axvline(overall, color=GRAY, linewidth=1, linestyle="--")
        axes.set_title(f"by {by}", fontsize=10, loc="left")
        axes.set_xlabel(metric if overall is None else f"{metric} (dashed: {overall:.3f}, all users)", fontsize=9)
        _tidy(axes, grid="x")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def plot_training(epochs: Sequence[Mapping[str, Any]], *, best_epoch: int, path: Path) -> None:
    """Plot the training loss and the validation metrics of each epoch, and mark the epoch that was picked.

    Args:
        epochs: epoch, loss and validation of each epoch.
        best_epoch: the epoch whose weights the model has.
        path: the file.
    """
    check_plot(path)
    from matplotlib.figure import Figure  # noqa: PLC0415  (optional, and slow to import)

    figure = Figure(figsize=(8.4, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    trained = [each for each in epochs if each["loss"] is not None]
    left.plot([each["epoch"] for each in trained], [each["loss"] for each in trained], color=BLUE, marker=".")
    left.set_title("training loss", fontsize=10, loc="left")
    validated = [each for each in epochs if each["validation"]]
    for name, color in (("HR@10", BLUE), ("MRR", "#d1802d")):
        own = [each for each in validated if name in each["validation"]]
        right.plot([each["epoch"] for each in own], [each["validation"][name] for each in own], color=color, marker=".",
                   label=name)  # fmt: skip
    right.set_ylim(bottom=0)
    right.set_title("validation", fontsize=10, loc="left")
    for axes in (left, right):
        axes.axvline(best_epoch, color=GRAY, linewidth=1, linestyle="--", label=f"picked: epoch {best_epoch}")
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        _tidy(axes, grid="y")
    right.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _tidy(axes: "Axes", *, grid: Literal["x", "y"]) -> None:
    """Leave the two axes that carry numbers, and a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=0)
    axes.grid(visible=True, axis=grid, alpha=0.3)
    axes.set_axisbelow(True)
