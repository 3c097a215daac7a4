"""The figures of README and results, drawn from the tables of `benchmarks/results`; no number is typed in here.

python -m tools.pages.figures        draws them again into docs/images
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tools.pages import mixture_figures
from tools.pages.drawing import MIXTURE, axes_of, name_of, number, read_table, reading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COSINE = "#8a94a6"
COLORS = {"Average": "#2563eb", "PerComponent": "#d97706", "Weighted": "#059669", "BruteForce": "#111827"}
TIMES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
MODELS = ("Video", "ML-1M", "Beauty, skewed", "Beauty, random start")


def draw_gain() -> "Figure":
    """Draw the hit rate of a dot product or cosine beside that of a mixture on the same data."""
    factors = {row[""]: row for row in read_table("when-it-pays.md", "Matrix factors", first="")}
    small = {row["row"]: row for row in read_table("ml-1m.md", "Few values for each item", first="row")}
    large = {row["row"].partition(" ")[0]: row for row in read_table("ml-1m.md", "Hard negatives", first="row")}
    texts = {row[""]: row for row in read_table("when-it-pays.md", "InsuranceQA", first="")}
    late = {row["row"].partition(":")[0]: row for row in read_table("text.md", "InsuranceQA", first="row")}
    groups = [
        (name, number(simple["HR@10"]), number(mixture["HR@10"]))
        for name, simple, mixture in (
            ("matrix factors\nML-1M", factors["tuned"], factors["mixture"]),
            ("SASRec, 8 values\nML-1M", small["sasrec-cosine-8"], small["sasrec-mixture-8"]),
            ("HSTU, 50 values\nML-1M", large["best-cosine"], large["best"]),
            ("late interaction\nInsuranceQA", late["cosine"], late["merged"]),
            ("frozen MiniLM\nInsuranceQA", texts["tuned"], texts["widened"]),
        )
    ]
    figure, axes = axes_of(1, width=7.2, height=3.0)
    for place, (_, simple, mixture) in enumerate(groups):
        axes[0].bar(place - 0.2, simple, 0.38, color=COSINE, label="cosine or dot product" if not place else None)
        axes[0].bar(place + 0.2, mixture, 0.38, color=MIXTURE, label="Mixture of Logits" if not place else None)
        axes[0].text(place, max(simple, mixture) + 0.015, f"{mixture / simple - 1:+.0%}", ha="center", fontsize=9)
    axes[0].set_xticks(range(len(groups)), [name for name, *_ in groups], fontsize=8)
    axes[0].set_ylabel("test HR@10")
    axes[0].set_ylim(0, 1)
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def draw_recall_against_time() -> "Figure":
    """Draw recall against the time of a search, for four trained models."""
    figure, axes = axes_of(len(MODELS), width=7.2, height=5, rows=2)
    for axis, model in zip(axes, MODELS, strict=True):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in read_table("strategies.md", model, first="strategy"):
            kind = row["strategy"].partition("(")[0]
            if kind in COLORS:
                points.setdefault(kind, []).append((number(row["CPU ms, batch of 32"]), number(row["recall"])))
        for kind, found in points.items():
            times, recalls = zip(*sorted(found, key=lambda point: point[1]), strict=True)
            axis.plot(times, recalls, marker="o", markersize=3, linewidth=1, color=COLORS[kind], label=kind)
        axis.set_title(model, fontsize=9)
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        axis.set_xticks([time for time in TIMES if low <= time <= high])
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.set_xlabel("CPU ms, batch of 32", fontsize=8)
        axis.set_ylabel("recall of the top 100", fontsize=8)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def draw_items_scored() -> "Figure":
    """Draw the share of items that the exact TwoPass scores, for four trained models."""
    figure, axes = axes_of(1, width=6, height=2.2)
    for place, model in enumerate(MODELS):
        rows = {row["exact search"]: row for row in read_table("strategies.md", model, first="exact search")}
        share = number(rows["TwoPass"]["items scored"])
        axes[0].barh(place, share, color=MIXTURE)
        cost = number(rows["TwoPass"]["against brute force"])
        axes[0].text(min(share + 1, 55), place, f"{share} %, time {cost} of brute force", va="center", fontsize=8,
                     color="black" if share < 60 else "white")  # fmt: skip
    axes[0].set_yticks(range(len(MODELS)), MODELS, fontsize=8)
    axes[0].set_xlabel("items scored by TwoPass, %", fontsize=8)
    axes[0].set_xlim(0, 100)
    return figure


FIGURES = {
    "gain.svg": draw_gain,
    "recall-time.svg": draw_recall_against_time,
    "two-pass.svg": draw_items_scored,
    **mixture_figures.FIGURES,
}


def write_figures(target: Path) -> list[Path]:
    """Draw all figures into a folder; return their files. Each one holds the name of the tables it was drawn from."""
    import matplotlib as mpl  # noqa: PLC0415

    target.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "railsearch"}):
        for name, draw in FIGURES.items():
            with reading() as tables:
                figure = draw()
            figure.savefig(target / name, metadata={"Date": None, "Description": f"tables {name_of(tables)}"})
    return [target / name for name in FIGURES]


def tables_of(image: Path) -> str | None:
    """Return the name of the tables that a figure was drawn from."""
    found = re.search(r"tables ([0-9a-f]{16})", image.read_text())
    return found[1] if found else None


if __name__ == "__main__":
    print(*write_figures(IMAGES), sep="\n")
