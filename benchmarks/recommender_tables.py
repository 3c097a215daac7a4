"""The tables of benchmarks/results/ml-1m.md and amazon.md: each encoder with its cosine, and with a mixture. Markdown.

python benchmarks/recommender_tables.py train ml-1m data/ml-1m --runs runs/tables/ml-1m --seeds 0 1
python benchmarks/recommender_tables.py train ml-1m data/ml-1m --runs runs/tables/ml-1m --paper --rows hstu hstu-mol
python benchmarks/recommender_tables.py train amazon data/beauty --runs runs/tables/beauty --seeds 0 1
python benchmarks/recommender_tables.py report ml-1m --runs runs/tables/ml-1m

`railsearch data prepare` writes the data folders. A row with a mixture continues the cosine of the same encoder and
seed, with the weights of the epoch that validation picked (`railsearch train --from`), at a lower rate. The row
"longer" continues the cosine in the same way, as a control of the mixture. "best" and "sasrec-best" are one run each,
whose last epochs have a mixture, and "best-cosine" and "sasrec-best-cosine" their controls. "sasrec-mixture-8" and
"sasrec-cosine-8" store 8 values for each item, and have 8 query components and 1. Runs that are finished are skipped,
and interrupted ones resume: run the same command again. With --paper, no item is held out for validation, and the test
item itself picks the epoch, as in the paper's tables. Intervals are 95 %, by a bootstrap over users and seeds; those of
differences are paired.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from paying.intervals import difference, figure, values_of
from paying.sequences import Run

from railsearch import Recommender
from railsearch.benchmark.machine import describe_machine
from railsearch.data import leave_last_out, read_prepared
from railsearch.models import rank_held_out
from railsearch.recipes import Recipe, recipe_file

METRICS = ("HR@1", "HR@10", "HR@50", "HR@200", "MRR", "NDCG@10")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: a shipped recipe with changes, and the row whose model it continues."""

    recipe: str
    changes: tuple[str, ...] = ()
    start: str | None = None
    against: tuple[str, ...] = ()
    """The rows that this one is compared with."""


CONTINUED = ("training.learning_rate=0.0005", "training.epochs=4", "training.patience=4")
"""Settings with which a row continues another one."""
SHORT_CONTINUED = ("training.learning_rate=0.001", *CONTINUED[1:])
"""The same on short histories."""
MIXTURE = (*CONTINUED, "training.similarity_rate=4")
"""Settings with which a mixture continues a cosine."""
LONGER = ("training.epochs=40", "training.patience=40")
"""Settings of one long run of SASRec."""
LATE_MIXTURE = (*LONGER, "training.cosine_epochs=36", "training.similarity_rate=4", "training.positions_per_history=")
"""The same with a mixture in the last epochs, over all positions as the cosine."""


def of_few_values(values: int) -> dict[str, Row]:
    """Return a cosine and a mixture that both store this many values for each item, and no gate."""
    changes = (f"similarity.component_dim={values}",)
    cosine = f"sasrec-cosine-{values}"
    return {
        cosine: Row("cpu/sasrec-mol-8", (*changes, "similarity.num_query_components=1")),
        f"sasrec-mixture-{values}": Row("cpu/sasrec-mol-8", changes, against=(cosine,)),
    }


TABLES = {
    "ml-1m": {
        "sasrec": Row("cpu/sasrec"),
        "sasrec-longer": Row("cpu/sasrec", CONTINUED, start="sasrec"),
        "sasrec-mol": Row("cpu/sasrec-mol", MIXTURE, start="sasrec", against=("sasrec", "sasrec-longer")),
        "hstu": Row("cpu/hstu"),
        "hstu-longer": Row("cpu/hstu", CONTINUED, start="hstu"),
        "hstu-mol": Row("cpu/hstu-mol", MIXTURE, start="hstu", against=("hstu", "hstu-longer")),
        "hstu-mol-no-balance": Row(
            "cpu/hstu-mol", (*MIXTURE, "training.balance_weight=0"), start="hstu", against=("hstu", "hstu-longer")
        ),
        "best": Row("ml-1m/best", against=("best-cosine",)),
        "best-cosine": Row("cpu/hstu", ("training.epochs=22", "training.patience=20")),
        "sasrec-best": Row("cpu/sasrec-mol", LATE_MIXTURE, against=("sasrec-best-cosine",)),
        "sasrec-best-cosine": Row("cpu/sasrec", LONGER),
        **of_few_values(8),
        **of_few_values(16),
    },
    "amazon": {
        "sasrec": Row("amazon/sasrec"),
        "sasrec-longer": Row("amazon/sasrec", SHORT_CONTINUED, start="sasrec"),
        "sasrec-mol": Row("amazon/sasrec-mol", SHORT_CONTINUED, start="sasrec", against=("sasrec", "sasrec-longer")),
        "hstu": Row("amazon/hstu"),
        "hstu-longer": Row("amazon/hstu", SHORT_CONTINUED, start="hstu"),
        "hstu-mol": Row("amazon/hstu-mol", SHORT_CONTINUED, start="hstu", against=("hstu", "hstu-longer")),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "report"):
        command = commands.add_parser(name)
        command.add_argument("table", choices=list(TABLES))
        if name == "train":
            command.add_argument("data", type=Path, help="a folder that railsearch data prepare wrote")
        command.add_argument("--runs", type=Path, required=True, help="folder of the runs")
        command.add_argument("--rows", nargs="+", help="rows of the table; all by default")
        command.add_argument("--seeds", type=int, nargs="+", default=[0])
        command.add_argument("--set", dest="changes", action="append", default=[], help="as in railsearch train")
        command.add_argument("--paper", action="store_true", help="the paper's protocol: the test item picks the epoch")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    runs = {
        (name, seed): plan(options, name, seed)
        for seed in options.seeds
        for name in options.rows or TABLES[options.table]
    }
    if options.command == "train":
        train(runs, options)
    report(runs, TABLES[options.table])


def plan(options: argparse.Namespace, name: str, seed: int) -> Run:
    """Return the run of a row with a seed."""
    row = TABLES[options.table][name]
    changes = [*row.changes, *options.changes, f"training.seed={seed}"]
    if options.paper:
        changes += ["split.has_validation=false", "training.validation_users=1000000000"]
    folder = options.runs / f"{name}{'-paper' if options.paper else ''}-seed{seed}"
    return Run(name, seed, Recipe.read(recipe_file(row.recipe), changes), folder)


def train(runs: dict[tuple[str, int], Run], options: argparse.Namespace) -> None:
    """Train the runs that are not finished."""
    interactions = read_prepared(options.data)
    print(describe_machine())
    for (name, seed), run in runs.items():
        if run.test_ranks() is not None:
            continue
        start = TABLES[options.table][name].start
        start_run = None if start is None else plan(options, start, seed)
        print(f"{run.folder} ...", flush=True)
        recommender = Recommender.fit(
            interactions,
            run.recipe,
            start=None if start_run is None else Recommender.load(start_run.folder / "model"),
            folder=run.folder,
            save_to=run.folder / "model",
            overwrite=True,
        )
        split = leave_last_out(interactions, has_validation=run.recipe.split.has_validation)
        ranks = rank_held_out(recommender.model, interactions, split.test)
        run.ranks_file.write_text(json.dumps({"recipe": run.recipe.model_dump(mode="json"), "ranks": ranks.tolist()}))


def report(runs: dict[tuple[str, int], Run], table: dict[str, Row]) -> None:
    """Print test figures with intervals, differences from the row that was continued, and time."""
    finished = {key: run for key, run in runs.items() if run.test_ranks() is not None}
    names = list(dict.fromkeys(name for name, _ in finished))
    seeds = {name: [seed for found, seed in finished if found == name] for name in names}
    print(f"\n| row | seeds | epoch of | {' | '.join(METRICS)} | minutes |")
    print("|---" * (len(METRICS) + 4) + "|")
    for name in names:
        own = [finished[name, seed] for seed in seeds[name]]
        picked = ", ".join(f"{run.picked()} of {max(run.curve())}" for run in own)
        figures = " | ".join(figure(ranked(own, metric)) for metric in METRICS)
        minutes = statistics.median(max(run.minutes().values()) for run in own)
        print(f"| {name} | {', '.join(map(str, seeds[name]))} | {picked} | {figures} | {minutes:.0f} |")
    pairs = [
        (name, other) for name in names for other in table[name].against if set(seeds[name]) & set(seeds.get(other, []))
    ]
    if pairs:
        print(f"\n| difference | seeds | {' | '.join(METRICS)} |")
        print("|---" * (len(METRICS) + 2) + "|")
    for name, other in pairs:
        common = [seed for seed in seeds[name] if seed in seeds[other]]
        both = [[finished[each, seed] for seed in common] for each in (name, other)]
        cells = " | ".join(difference(ranked(both[0], metric), ranked(both[1], metric)) for metric in METRICS)
        print(f"| {name} - {other} | {', '.join(map(str, common))} | {cells} |")


def ranked(runs: Sequence[Run], metric: str) -> torch.Tensor:
    """Return a metric of every user's test item, (S, Q) for S seeds."""
    return torch.stack([values_of(run.test_ranks() or [], metric) for run in runs])


if __name__ == "__main__":
    main()
