"""The plot of a benchmark: hit rate against latency of each strategy."""

import importlib.util
import os
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
        f"{report.component_dim}, {report.dtype}\n{report.machine}",
        fontsize=9,
    )
    figure.legend(loc="outside right upper")
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=150)
