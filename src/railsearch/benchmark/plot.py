"""Plots: hit rate against latency of each strategy, and metrics of several systems with their intervals."""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from railsearch.benchmark.report import BenchmarkReport
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.extras import missing_extra

FORMATS = (".png", ".svg", ".pdf")


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
