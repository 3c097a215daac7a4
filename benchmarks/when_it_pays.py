"""When a mixture pays: every figure of benchmarks/results/when-it-pays.md. Markdown.

python benchmarks/when_it_pays.py frozen exp/insuranceqa --splits 5
python benchmarks/when_it_pays.py frozen exp/medquad --splits 5
python benchmarks/when_it_pays.py factors exp/factors --seeds 0 1 2
python benchmarks/when_it_pays.py sequences exp/video --recipe cosine.toml mol.toml --seeds 0 1 --runs runs/video
python benchmarks/when_it_pays.py cost exp/video --recipe cosine.toml mol.toml
python benchmarks/when_it_pays.py table

`frozen_embeddings.py` and `matrix_factors.py` write the folders of `frozen` and `factors`, `railsearch data prepare`
those of `sequences`. All commands resume: run the same command again. Intervals are 95 %, from a bootstrap over
queries and seeds; those of differences are paired.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
from paying.embeddings import Settings, compare, read_factors, split_by_query
from paying.results import ResultsFile
from paying.sequences import plan_runs, train
from paying.tables import show_embeddings, show_sequences

from railsearch import Recommender
from railsearch.benchmark.machine import describe_machine
from railsearch.data import read_prepared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("frozen", "factors"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument(
            "--score", choices=("cosine", "dot_product"), default="cosine" if name == "frozen" else "dot_product"
        )
        command.add_argument("--components", type=int, nargs=2, default=[4, 4], help="of a query and of an item")
        command.add_argument("--seeds", type=int, nargs="+", default=[0])
        command.add_argument(
            "--options", type=json.loads, default={}, help="JSON object with arguments of fit_similarity"
        )
        command.add_argument("--label", default="", help="name of this comparison in the table")
        command.add_argument("--results", type=Path, default=Path("runs/when-it-pays.jsonl"))
    commands.choices["frozen"].add_argument("--splits", type=int, default=5)
    commands.choices["frozen"].add_argument("--held-out", type=int, default=500, help="queries of a test")
    for name in ("sequences", "cost"):
        command = commands.add_parser(name)
        command.add_argument("data", type=Path, help="a folder that railsearch data prepare wrote")
        command.add_argument("--recipe", type=Path, nargs="+", required=True, help="the baseline first")
        command.add_argument("--set", dest="changes", action="append", default=[], help="as in railsearch train")
    commands.choices["sequences"].add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    commands.choices["sequences"].add_argument("--runs", type=Path, required=True, help="folder for the runs")
    commands.choices["sequences"].add_argument(
        "--report", action="store_true", help="train nothing; show what there is"
    )
    commands.choices["sequences"].add_argument(
        "--epoch-seconds",
        type=float,
        nargs="+",
        help="for each recipe, seconds of an epoch with its validation on a quiet machine, as `cost` prints them; "
        "minutes are then counted with them",
    )
    commands.choices["cost"].add_argument("--repeats", type=int, default=3)
    table = commands.add_parser("table")
    table.add_argument("--results", type=Path, default=Path("runs/when-it-pays.jsonl"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    if options.command in {"frozen", "factors"}:
        run_embeddings(options)
    elif options.command == "sequences":
        runs = plan_runs(options.recipe, options.seeds, options.changes, options.runs, options.epoch_seconds)
        print(describe_machine())
        if not options.report:
            print(train(runs, options.data))
        show_sequences(runs)
    elif options.command == "cost":
        measure_cost(options)
    else:
        show_embeddings(ResultsFile(options.results).lines())


def run_embeddings(options: argparse.Namespace) -> None:
    """Compare the own score of given embeddings, that score tuned, and a mixture."""
    results = ResultsFile(options.results)
    for seed in options.seeds:
        settings = Settings(options.score, tuple(options.components), seed, options.options)
        parts = (
            split_by_query(options.folder, num_splits=options.splits, num_held_out=options.held_out)
            if options.command == "frozen"
            else [read_factors(options.folder)]
        )
        for part in parts:
            compare(part, settings, results, command=options.command, data=options.folder.name, label=options.label)
    show_embeddings(
        [
            line
            for line in results.lines()
            if (line["command"], line["data"], line["label"]) == (options.command, options.folder.name, options.label)
        ]
    )


def measure_cost(options: argparse.Namespace) -> None:
    """Train one epoch of each recipe in turn, several times, so that other work on the machine meets all of them."""
    interactions = read_prepared(options.data)
    changes = [*options.changes, "training.epochs=1"]
    seconds: dict[Path, list[tuple[float, float]]] = {file: [] for file in options.recipe}
    for _ in range(options.repeats):
        for run in plan_runs(options.recipe, [0], changes, Path()):
            report = Recommender.fit(interactions, run.recipe, show_progress=False).report
            assert report is not None
            epoch = report.epochs[-1]
            file = next(file for file in options.recipe if file.stem == run.name)
            seconds[file].append((epoch.seconds, epoch.validation_seconds))
    print(f"{describe_machine()}; medians of {options.repeats} epochs, the recipes in turn\n")
    print("| recipe | seconds an epoch | against the first | seconds a validation | validation / training |")
    print("|---|---|---|---|---|")
    first = statistics.median(training for training, _ in seconds[options.recipe[0]])
    for file, times in seconds.items():
        training, validation = (statistics.median(each) for each in zip(*times, strict=True))
        ratios = f"{training / first:.2f} x | {validation:.1f} | {validation / training:.2f}"
        print(f"| {file.stem} | {training:.1f} | {ratios} |")


if __name__ == "__main__":
    main()
