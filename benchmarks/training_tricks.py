"""Tricks of training, each alone, for a fixed budget of steps against the same base run. Markdown.

python benchmarks/training_tricks.py data/ml-1m --out exp/tricks              all tricks, a minute of one core each
python benchmarks/training_tricks.py data/ml-1m --out exp/tricks --tricks base ema-0.99 --seeds 0 1
python benchmarks/training_tricks.py data/ml-1m --out exp/tricks --set --steps 3780    10 epochs of the recipe as it is
python benchmarks/training_tricks.py data/ml-1m --out exp/tricks --table      only the table of what is done

The base is a recipe (cpu/sasrec-mol by default) with `--set` changes. By default these train the mixture from the
first step, with fewer positions and negatives, for 3 epochs. A run that is done is skipped, an interrupted one
resumes, and the folder has log.txt with a line for each epoch. Figures are of the validation items of all users, at
the best epoch by the recipe's metric; the test items are never read. Differences from the base are paired by user,
with their 95 % interval (a bootstrap), in bold if the interval excludes zero.
"""

import argparse
import logging
import time
import zlib
from pathlib import Path

import torch
from paying.intervals import difference, short, values_of
from paying.results import Line, ResultsFile

from railsearch.benchmark.machine import describe_machine
from railsearch.data import Split, leave_last_out, read_prepared
from railsearch.models.ranking import rank_held_out
from railsearch.recipes import Recipe, read_recipe
from railsearch.recommender.fitting import train_model
from railsearch.training.processes import Processes

BASE = "base"
TRICKS: dict[str, list[str]] = {
    BASE: [],
    "cosine": ["similarity.kind=cosine"],
    "cosine-first": ["training.cosine_epochs="],
    "random-start": ["similarity.start=random"],
    "no-warm-up": ["training.warmup_share=0"],
    "warm-up-0.2": ["training.warmup_share=0.2"],
    "constant-rate": ["training.schedule=constant"],
    "cosine-schedule": ["training.schedule=cosine"],
    "gate-rate-1": ["training.gate_rate=1"],
    "projection-rate-1": ["training.projection_rate=1"],
    "similarity-rate-1": ["training.similarity_rate=1"],
    "learned-temperature": ["similarity.learns_temperature=true"],
    "annealed-temperature-0.1": ["training.temperature_start=0.1"],
    "annealed-temperature-0.2": ["training.temperature_start=0.2"],
    "annealed-temperature-0.025": ["training.temperature_start=0.025"],
    "user-component": ["similarity.user_table_size={users}"],
    "user-component-dropout-0.9": ["similarity.user_table_size={users}", "similarity.user_dropout=0.9"],
    "gate-dropout-0": ["similarity.gate_dropout=0"],
    "gate-dropout-0.4": ["similarity.gate_dropout=0.4"],
    "component-dropout-0.1": ["similarity.component_dropout=0.1"],
    "component-dropout-0.25": ["similarity.component_dropout=0.25"],
    "item-dropout-0.1": ["similarity.item_dropout=0.1"],
    "balance-0": ["training.balance_weight=0"],
    "balance-0.01": ["training.balance_weight=0.01"],
    "ema-0.99": ["training.ema_decay=0.99"],
    "ema-0.999": ["training.ema_decay=0.999"],
    "weight-decay-0.01": ["training.weight_decay=0.01"],
}
"""Each trick and the settings that it changes. The default base has a warm-up of 0.05, a linear schedule and the
temperature 0.05, and gate and projections learn at a tenth of the encoder's rate."""
CHANGES = ["training.cosine_epochs=0", "training.positions_per_history=16", "training.num_negatives=512"]
"""The default changes of the base."""
OF_MIXTURES = ("num_query_components", "num_item_components", "gate_dim", "item_dropout")
"""Settings of the base that a cosine does not have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder that `railsearch data prepare` wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs, the results and the log")
    parser.add_argument("--recipe", type=Path, default=Path("cpu/sasrec-mol"))
    parser.add_argument(
        "--set", dest="changes", nargs="*", default=CHANGES, help="changes of the base and of every trick"
    )
    parser.add_argument("--steps", type=int, default=1134, help="budget of each run; rounded up to complete epochs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tricks", nargs="*", choices=TRICKS, default=list(TRICKS))
    parser.add_argument("--table", action="store_true", help="train nothing, print the table")
    options = parser.parse_args()

    options.out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=options.out / "log.txt", level=logging.INFO, format="%(asctime)s %(message)s")
    results = ResultsFile(options.out / "results.jsonl")
    interactions = read_prepared(options.data)
    changed = zlib.crc32(" ".join([str(options.recipe), *options.changes]).encode())
    budget = {"steps": options.steps, "recipe": str(options.recipe), "changes": options.changes}
    for seed in options.seeds if not options.table else []:
        for trick in [BASE, *(name for name in options.tricks if name != BASE)]:
            about: Line = {"trick": trick, "seed": seed, **budget}
            if results.has(about):
                continue
            logging.info("start %s", about)
            recipe = recipe_of(
                trick,
                options.recipe,
                options.changes,
                seed=seed,
                steps=options.steps,
                num_users=interactions.num_users,
            )
            split = leave_last_out(interactions, has_validation=True)
            folder = options.out / "runs" / f"{options.recipe.stem}-{options.steps}-{trick}-{seed}-{changed:08x}"
            results.append({**about, **measure(recipe, split, folder)})
            print_table(results, budget)
    if options.table:
        print_table(results, budget)


def recipe_of(trick: str, base: Path, changes: list[str], *, seed: int, steps: int, num_users: int) -> Recipe:
    """Return the recipe of a run: the base with the settings of one trick, and as many epochs as the steps fill."""
    own = [each.format(users=num_users) for each in TRICKS[trick]]
    if trick == "cosine":
        own += [f"similarity.{name}=" for name in OF_MIXTURES]
    recipe = read_recipe(base, [*changes, *own, f"training.seed={seed}", "training.patience="])
    assert isinstance(recipe, Recipe)
    epochs = -(-steps // -(-num_users // recipe.training.batch_size))
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"epochs": epochs})})


def measure(recipe: Recipe, split: Split, folder: Path) -> Line:
    """Train, and rank the validation items of all users."""
    assert split.validation is not None
    began = time.perf_counter()
    model, report = train_model(recipe, split, start=None, folder=folder, processes=Processes(), show_progress=None)
    wall = time.perf_counter() - began
    ranks = rank_held_out(model, split.interactions, split.validation)  # (U,)
    for epoch in report.epochs:
        logging.info("%s %s", folder.name, epoch)
    seconds = sum(epoch.seconds for epoch in report.epochs)
    return {
        "best_epoch": report.best_epoch,
        "epochs": len(report.epochs),
        "seconds": seconds,  # of training, without validation; also of earlier sittings of a run that resumed
        "wall": wall,
        "ranks": ranks.tolist(),
    }


def print_table(results: ResultsFile, budget: Line) -> None:
    """Print one row for each trick, over the seeds that both it and the base have."""
    done: dict[str, dict[int, Line]] = {}
    for line in results.lines():
        if all(line.get(name) == value for name, value in budget.items()):
            done.setdefault(str(line["trick"]), {})[int(str(line["seed"]))] = line
    changes = budget["changes"]
    assert isinstance(changes, list)
    print(
        f"\n{describe_machine()}; {budget['steps']} steps of {' '.join([str(budget['recipe']), *map(str, changes)])}\n"
    )
    print("| trick | seeds | best epoch | HR@10 | from base | MRR | from base | seconds |")
    print("|---" * 8 + "|")
    for trick, runs in done.items():
        seeds = [seed for seed in runs if seed in done.get(BASE, {})]
        if not seeds:
            continue
        cells = []
        for metric in ("HR@10", "MRR"):
            own, base = (
                torch.stack([values_of(lines[seed]["ranks"], metric) for seed in seeds])  # type: ignore[arg-type]
                for lines in (runs, done[BASE])
            )  # (S, U)
            cells += [short(float(own.mean())), "" if trick == BASE else difference(own, base)]
        best = ", ".join(f"{runs[seed]['best_epoch']} of {runs[seed]['epochs']}" for seed in seeds)
        seconds = sum(float(str(runs[seed]["seconds"])) for seed in seeds) / len(seeds)
        print(f"| {trick} | {len(seeds)} | {best} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
