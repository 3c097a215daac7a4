"""Markdown tables of the comparisons."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from paying.embeddings import MODELS
from paying.intervals import METRICS, difference, figure, short, values_of
from paying.results import Line
from paying.sequences import Run

DIFFERENCES = (
    ("tuned", "frozen"),
    ("mixture", "tuned"),
    ("widened", "tuned"),
    ("widened", "tuned twice"),
    ("widened", "frozen"),
)
NUM_MARKS = 10
"""Number of rows of the table at equal minutes."""


def show_embeddings(lines: Sequence[Line]) -> None:
    """Print, for each comparison, the figures of all splits together, paired differences, and each split alone."""
    groups: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[
            tuple(str(line[name]) for name in ("command", "data", "label", "score", "components", "options"))
        ].append(line)
    for (command, data, label, score, components, options), group in groups.items():
        of_model = {
            model: {(line["part"], line["seed"]): line for line in group if line["model"] == model} for model in MODELS
        }
        complete = sorted(set.intersection(*(set(found) for found in of_model.values())), key=str)
        if not complete:
            continue
        first = of_model["mixture"][complete[0]]
        seeds = sorted({seed for _, seed in complete})
        parts = [
            part for part in dict.fromkeys(part for part, _ in complete) if all((part, s) in complete for s in seeds)
        ]
        if not parts:
            continue
        values = {
            (model, metric): torch.stack(
                [torch.cat([values_of(of_model[model][p, s]["ranks"], metric) for p in parts]) for s in seeds]
            )
            for model in MODELS
            for metric in METRICS
        }  # (S, Q) each
        name = f"{data} ({label})" if label else data
        print(f"\n## {name}: {command}, {score}, {components} components, options {options}\n")
        print(f"{first['num_items']} items, {first['num_pairs']} training pairs; {len(parts)} splits with")
        print(f"{values['frozen', 'MRR'].shape[1]} test queries in all; seeds {', '.join(map(str, seeds))}.\n")
        print(f"| | {' | '.join(METRICS)} | best epoch | seconds |")
        print("|---" * (len(METRICS) + 3) + "|")
        for model in MODELS:
            found = [of_model[model][part] for part in complete]
            picked = ", ".join(str(line.get("best_epoch", "")) for line in found).strip(", ")
            seconds = statistics.median(float(str(line["seconds"])) for line in found)
            figures = " | ".join(figure(values[model, metric]) for metric in METRICS)
            print(f"| {model} | {figures} | {picked} | {seconds:.0f} |")
        for model, other in DIFFERENCES:
            show_difference(model, other, values, "| |")
        print(f"\n| split, seed | {' | '.join(f'{model} HR@1 / HR@10 / MRR' for model in MODELS)} |")
        print("|---" * (len(MODELS) + 1) + "|")
        for part in complete:
            cells = [
                " / ".join(short(float(values_of(of_model[model][part]["ranks"], metric).mean())) for metric in METRICS)
                for model in MODELS
            ]
            print(f"| {part[0]}, seed {part[1]} | {' | '.join(cells)} |")


def show_difference(name: str, other: str, values: dict[tuple[str, str], torch.Tensor], rest: str) -> None:
    """Print a row of paired differences, in bold where they are clear."""
    found = " | ".join(difference(values[name, metric], values[other, metric]) for metric in METRICS)
    print(f"| {name} - {other} | {found} {rest}")


def show_sequences(runs: Sequence[Run]) -> None:
    """Print validation by epoch and at equal minutes, test figures with intervals, and time."""
    names = list(dict.fromkeys(run.name for run in runs))
    started = [run for run in runs if run.curve()]
    of_name = {name: [run for run in started if run.name == name] for name in names}
    names = [name for name in names if of_name[name]]
    if not names:
        print("no run has a validated epoch yet.")
        return
    show_curves({name: of_name[name] for name in names})
    show_equal_minutes({name: of_name[name] for name in names})
    show_test({name: of_name[name] for name in names})
    show_time({name: of_name[name] for name in names})


def show_curves(runs: dict[str, list[Run]]) -> None:
    """Print validation by epoch, the mean over the seeds that have reached it in all recipes."""
    first, *others = runs
    curves = {(name, run.seed): run.curve() for name, found in runs.items() for run in found}
    seeds = sorted(set.intersection(*({run.seed for run in found} for found in runs.values())))
    print(f"\n## Validation by epoch: HR@10 (MRR), mean of seeds {', '.join(map(str, seeds))}\n")
    print(f"| epoch | {' | '.join(runs)} |" + "".join(f" {name} against {first} |" for name in others))
    print("|---" * (len(runs) + len(others) + 1) + "|")
    for epoch in sorted({epoch for curve in curves.values() for epoch in curve}):
        means = {}
        for name in runs:
            found = [curves[name, seed][epoch] for seed in seeds if epoch in curves[name, seed]]
            if found and len(found) == len(seeds):
                means[name] = {m: statistics.mean(each[m] for each in found) for m in ("HR@10", "MRR")}
        cells = [
            f"{short(means[name]['HR@10'])} ({short(means[name]['MRR'])})" if name in means else "" for name in runs
        ]
        ratios = [
            f"{means[name]['HR@10'] / means[first]['HR@10'] - 1:+.1%} "
            f"({means[name]['MRR'] / means[first]['MRR'] - 1:+.1%})"
            if name in means and first in means and means[first]["HR@10"]
            else ""
            for name in others
        ]
        print(f"| {epoch} | {' | '.join([*cells, *ratios])} |")


def show_equal_minutes(runs: dict[str, list[Run]]) -> None:
    """Print the validation figures of the epoch that would be picked after so many minutes, mean over seeds."""
    shortest = min(max(run.minutes().values()) for found in runs.values() for run in found)
    print("\n## Validation at equal minutes: HR@10 of the best epoch so far (that epoch)\n")
    print(f"| minutes | {' | '.join(runs)} |")
    print("|---" * (len(runs) + 1) + "|")
    for mark in np.linspace(shortest / NUM_MARKS, shortest, NUM_MARKS):
        cells = []
        for found in runs.values():
            picked = [(run.curve()[epoch]["HR@10"], epoch) for run in found if (epoch := picked_within(run, mark))]
            epochs = ", ".join(str(epoch) for _, epoch in picked)
            cells.append(f"{short(statistics.mean(hits for hits, _ in picked))} ({epochs})" if picked else "")
        print(f"| {mark:.1f} | {' | '.join(cells)} |")


def picked_within(run: Run, minutes: float) -> int | None:
    """Return the epoch that validation would pick after so many minutes; None before the end of the first one."""
    passed, curve, metric = run.minutes(), run.curve(), run.recipe.training.metric
    done = [epoch for epoch in curve if epoch > 0 and passed[epoch] <= minutes + 1e-9]
    return max(done, key=lambda epoch: (curve[epoch][metric], -epoch), default=None)


def show_test(runs: dict[str, list[Run]]) -> None:
    """Print test figures of each run, and means over seeds with intervals and paired differences."""
    ranks = {(run.name, run.seed): found for each in runs.values() for run in each if (found := run.test_ranks())}
    if not ranks:
        return
    print("\n## Test, at the epoch that validation picked\n")
    print(f"| run | {' | '.join(METRICS)} | epochs | picked | minutes | minutes to the picked epoch |")
    print("|---" * (len(METRICS) + 5) + "|")
    for run in (run for found in runs.values() for run in found if (run.name, run.seed) in ranks):
        figures = " | ".join(figure(values_of(ranks[run.name, run.seed], metric)[None]) for metric in METRICS)
        minutes, picked = run.minutes(), run.picked()
        counts = f"{max(minutes)} | {picked} | {max(minutes.values()):.1f} | {minutes.get(picked, 0):.1f}"
        print(f"| {run.name}, seed {run.seed} | {figures} | {counts} |")
    seeds = sorted(
        set.intersection(*({run.seed for run in each if (run.name, run.seed) in ranks} for each in runs.values()))
    )
    if not seeds:
        return
    values = {
        (name, metric): torch.stack([values_of(ranks[name, seed], metric) for seed in seeds])
        for name in runs
        for metric in METRICS
    }  # (S, Q) each
    for name in runs:
        figures = " | ".join(figure(values[name, metric]) for metric in METRICS)
        print(f"| {name}, mean of seeds {', '.join(map(str, seeds))} | {figures} | | | | |")
    first, *others = runs
    for name in others:
        show_difference(name, first, values, "| | | | |")


def show_time(runs: dict[str, list[Run]]) -> None:
    """Print the median time of an epoch and of a validation."""
    print("\n## Time, medians\n")
    print("| recipe | seconds an epoch | against the first | seconds a validation | validation / training |")
    print("|---|---|---|---|---|")
    of_first = None
    for name, found in runs.items():
        lines = [line for run in found for line in run.log() if line["epoch"] > 0]
        training = statistics.median(line["seconds"] for line in lines)
        validation = statistics.median(line["validation_seconds"] for line in lines if line["validation"])
        of_first = of_first or training
        share = validation / training
        print(f"| {name} | {training:.1f} | {training / of_first:.2f} x | {validation:.1f} | {share:.2f} |")
