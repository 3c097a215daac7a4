"""Validation HR@10 against minutes of training, for each kind and number of negatives: one recipe, one budget each.

python benchmarks/negatives.py data/ml-1m --folder runs/negatives           2.5 minutes each: half an hour of one core
python benchmarks/negatives.py data/ml-1m --minutes 30 --only uniform-2048 all --recipe cpu/hstu
python benchmarks/negatives.py data/ml-1m --steps 1 --only uniform-128 --folder /tmp/smoke      # a smoke test

The data is a folder of `railsearch data prepare`. A run trains epoch by epoch until its steps have taken the given
minutes (validation does not count) or there are enough of them. The learning rate is constant: a schedule needs a known
number of steps. Every run has its folder and resumes: start the script
again to continue, or with more minutes to prolong. The best validation HR@10 so far is printed at each quarter of the
budget. Lines go to FOLDER/negatives.log too.
"""

import argparse
import math
from pathlib import Path

import torch

from railsearch.benchmark.machine import describe_machine
from railsearch.data import Split, leave_last_out, read_prepared
from railsearch.models import SequentialModel
from railsearch.recipes import Recipe, read_recipe
from railsearch.recommender.recipe import build_encoder, build_similarity
from railsearch.training.loop import train
from railsearch.training.report import EpochReport
from railsearch.training.tasks.histories import NextItemTask

KINDS = {
    "per_example-128": ("per_example", 128),
    "per_history-128": ("per_history", 128),
    "uniform-128": ("uniform", 128),
    "uniform-512": ("uniform", 512),
    "uniform-2048": ("uniform", 2048),
    "uniform-4096": ("uniform", 4096),
    "mixed-512": ("mixed", 512),
    "mixed-2048": ("mixed", 2048),
    "hard-512": ("hard", 512),
    "hard-2048": ("hard", 2048),
    "all": ("all", 1),
}
METRIC = "HR@10"
PARTS = (0.25, 0.5, 0.75, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of prepared interactions")
    parser.add_argument("--folder", type=Path, default=Path("runs/negatives"), help="folder of the runs")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--minutes", type=float, default=2.5, help="training time of each run")
    budget.add_argument("--steps", type=int, help="steps of each run, rounded up to epochs, instead of minutes")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="runs to train; all by default")
    parser.add_argument("--recipe", default="cpu/sasrec", help="name or file of the recipe")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], help="changes of the recipe")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    recipe = read_recipe(options.recipe, options.changes)
    assert isinstance(recipe, Recipe), f"{options.recipe} is not the recipe of a recommender"
    split = leave_last_out(read_prepared(options.data))
    options.folder.mkdir(parents=True, exist_ok=True)
    with (options.folder / "negatives.log").open("a") as log:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=log, flush=True)

        say(f"{' '.join([options.recipe, *options.changes])}, {split.interactions.num_items:,} items")
        say(f"{describe_machine()}; {options.threads} threads")
        say(
            f"| negatives | epochs | seconds a step | {' | '.join(f'{METRIC} at {part:.0%}' for part in PARTS)} | MRR |"
        )
        say("|---" * (len(PARTS) + 4) + "|")
        for name in options.only:
            epochs, steps_per_epoch = run(name, recipe, split, options)
            say(row(name, epochs, steps_per_epoch))


def run(name: str, recipe: Recipe, split: Split, options: argparse.Namespace) -> tuple[list[EpochReport], int]:
    """Train until the budget is spent; return the epochs, and the steps of each."""
    kind, count = KINDS[name]
    settings = {
        "negatives": kind, "num_negatives": count, "cosine_epochs": 0, "patience": None, "metric": METRIC,
        "schedule": "constant", "warmup_share": 0.0,
    }  # fmt: skip
    epochs: list[EpochReport] = []
    while True:
        config = type(recipe.training)(**recipe.training.model_dump() | settings | {"epochs": len(epochs) + 1})
        encoder = build_encoder(recipe, num_items=split.interactions.num_items, seed=config.seed)
        model = SequentialModel(encoder=encoder, similarity=build_similarity(recipe, seed=config.seed))
        task = NextItemTask(model, split, config)
        steps_per_epoch = math.ceil(task.num_examples / config.batch_size)
        report = train(task, config, folder=options.folder / name, show_progress=False)
        epochs = list(report.epochs)
        spent, limit = sum(epoch.seconds for epoch in epochs), 60 * options.minutes
        if options.steps is not None:
            spent, limit = len(epochs) * steps_per_epoch, options.steps
        if spent >= limit:
            return epochs, steps_per_epoch


def row(name: str, epochs: list[EpochReport], steps_per_epoch: int) -> str:
    """Return the row of a run: its best figure after each part of its training time."""
    seconds = sum(epoch.seconds for epoch in epochs)
    cells = []
    for part in PARTS:
        spent, best = 0.0, ""
        for epoch in epochs:
            spent += epoch.seconds
            if spent <= part * seconds * (1 + 1e-9) and epoch.validation is not None:
                best = max(best, f"{epoch.validation[METRIC]:.4f}")
        cells.append(best)
    mrr = max(epoch.validation["MRR"] for epoch in epochs if epoch.validation is not None)
    step = seconds / (len(epochs) * steps_per_epoch)
    return f"| {name} | {len(epochs)} | {step:.3f} | {' | '.join(cells)} | {mrr:.4f} |"


if __name__ == "__main__":
    main()
