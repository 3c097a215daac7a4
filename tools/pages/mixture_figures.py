"""Figures of one trained mixture: its gate, its component scores, the time of its searches, and its training."""

from itertools import groupby
from typing import TYPE_CHECKING

from tools.pages.drawing import MIXTURE, axes_of, number, read_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULT = "mixture.md"
LINES = ("#8a94a6", "#d97706", MIXTURE)


def draw_gate() -> "Figure":
    """Draw the mean gate weight of each component pair as a heat map, for items that are found and for random ones."""
    rows = read_table(RESULT, "Gate weights", first="items")
    kinds = list(dict.fromkeys(row["items"] for row in rows))
    columns = [name for name in rows[0] if name.startswith("g_")]
    figure, axes = axes_of(len(kinds), width=2.8 * len(kinds), height=3.2)
    for axis, kind in zip(axes, kinds, strict=True):
        own = [row for row in rows if row["items"] == kind]
        weights = [[number(row[column]) for column in columns] for row in own]
        axis.imshow(weights, cmap="Blues", vmin=0, vmax=max(number(row[name]) for row in rows for name in columns))
        for place, line in enumerate(weights):
            for column, weight in enumerate(line):
                color = "white" if weight > 0.35 else "black"
                axis.text(column, place, f"{weight:.2f}", ha="center", va="center", fontsize=8, color=color)
        axis.set_xticks(range(len(columns)), [f"${name}$" for name in columns])
        axis.set_yticks(range(len(own)), [f"${row['query component']}$" for row in own])
        axis.set_title(kind, fontsize=9)
    axes[0].set_ylabel("query component", fontsize=8)
    figure.supxlabel("item component", fontsize=8)
    return figure


def draw_scores() -> "Figure":
    """Draw the distribution of component scores and of scores."""
    rows = read_table(RESULT, "Component scores", first="from")
    edges = [number(row["from"]) for row in rows]
    edges.append(2 * edges[-1] - edges[-2])
    figure, axes = axes_of(1, width=6, height=2.8)
    for name, color in zip([name for name in rows[0] if name != "from"], LINES, strict=True):
        is_whole = name.endswith(": score")
        axes[0].stairs(
            [number(row[name]) * 100 for row in rows], edges, fill=not is_whole, alpha=1 if is_whole else 0.6,
            color=color, label=name, linewidth=1.5,
        )  # fmt: skip
    axes[0].set_xlabel("value", fontsize=8)
    axes[0].set_ylabel("share, %", fontsize=8)
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    axes[0].margins(y=0.35)
    axes[0].set_ylim(bottom=0)
    return figure


def draw_stages() -> "Figure":
    """Draw the time of each stage of a search."""
    rows = read_table(RESULT, "Time of a search by stage", first="stage")[::-1]
    figure, axes = axes_of(1, width=7.2, height=2.6)
    for place, row in enumerate(rows):
        taken = number(row["CPU ms"])
        axes[0].barh(place, taken, color="#8a94a6" if row["stage"].startswith("brute force") else MIXTURE)
        axes[0].text(taken, place, f" {taken:g}", va="center", fontsize=8)
    axes[0].set_yticks(range(len(rows)), [row["stage"] for row in rows], fontsize=8)
    axes[0].set_xlabel("CPU ms of one thread, 32 queries", fontsize=8)
    return figure


def draw_curves() -> "Figure":
    """Draw the loss and the validation hit rate of each run by epoch; a run with a start goes on where that ended."""
    runs = [
        (name, list(rows))
        for name, rows in groupby(read_table(RESULT, "Training curves", first="run"), key=lambda row: row["run"])
    ]
    ended = {(row["HR@10"], row["MRR"]): number(row["epoch"]) for row in runs[0][1]}
    starts = {name: ended.get((rows[0]["HR@10"], rows[0]["MRR"]), 0) for name, rows in runs[1:]}
    figure, axes = axes_of(2, width=8, height=2.8)
    for axis, column in zip(axes, ("loss", "HR@10"), strict=True):
        for (name, rows), color in zip(runs, LINES, strict=True):
            points = [(starts.get(name, 0) + number(row["epoch"]), number(row[column])) for row in rows if row[column]]
            axis.plot(*zip(*points, strict=True), color=color, label=name, linewidth=1.5)
        axis.set_xlabel("epoch, that of the start included", fontsize=8)
        axis.set_ylabel("training loss" if column == "loss" else "validation HR@10", fontsize=8)
    axes[1].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


FIGURES = {
    "gate-weights.svg": draw_gate,
    "component-scores.svg": draw_scores,
    "search-stages.svg": draw_stages,
    "training-curves.svg": draw_curves,
}
