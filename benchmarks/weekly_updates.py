r"""Weekly updates of a recommender against a model that is never updated, and against full retraining. Markdown.

OMP_NUM_THREADS=1 python benchmarks/weekly_updates.py --data data/ml-1m --runs runs/weekly --epochs 20 \
    --set encoder.max_length=50 --set training.negatives=per_history --set training.batch_size=32

MovieLens-1M is split by time. A model is trained on all ratings before the first week. Then, after each week:

stale    the first model, which is never trained again
update   the model of the week before, trained on the events of the week (`Recommender.fit(start=..., since=...)`)
retrain  a model that is trained from scratch on all events so far

All three are tested on the week that follows: every event of a user who has a history is to be found among all items,
from the history up to it (at most --test-events, drawn once). The last event of each user in the week of training is
held out to pick the epoch; the test week is read once. All models know the full catalogue. Seconds are CPU seconds of
training and validation in one thread, which other processes on the machine hardly change.

With --rates and --update-epochs of more than one value, the first update is made with all of them: the guidance for
updates comes from this table. Every result is kept in --runs, and a second run computes only the missing ones.
"""

import argparse
import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from railsearch import Recommender
from railsearch.data import HeldOut, Interactions, Split, read_prepared
from railsearch.evaluation import Evaluation
from railsearch.models.ranking import rank_held_out
from railsearch.recipes import Recipe, read_recipe, update_recipe

WEEK = 7 * 24 * 3600
METRICS = ("HR@10", "NDCG@10", "MRR")


@dataclass(frozen=True)
class Trained:
    """A model, and what its training took."""

    recommender: Recommender
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="ML-1M, as `railsearch data prepare ml-1m` wrote it")
    parser.add_argument("--runs", type=Path, required=True, help="folder of results and models")
    parser.add_argument("--recipe", default="ml-1m/sasrec")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="section.setting=value")
    parser.add_argument("--epochs", type=int, default=20, help="of the first model and of retraining")
    parser.add_argument("--first", default="2000-11-21", help="the day on which the first week begins")
    parser.add_argument("--weeks", type=int, default=4)
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4], help="learning rates of updates")
    parser.add_argument("--update-epochs", type=int, nargs="+", default=[5])
    parser.add_argument("--test-events", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    events = read_prepared(options.data)
    recipe = read_recipe(options.recipe, [*options.changes, f"training.epochs={options.epochs}"])
    assert isinstance(recipe, Recipe)
    first = int(pl.Series([options.first]).str.to_datetime(time_zone="UTC").dt.epoch("s")[0])
    base = train(options.runs / "base", recipe, events, end=first)
    print("| trained until | events of the week | model | tests | " + " | ".join(METRICS) + " | epoch | seconds |")
    print("|---" * (6 + len(METRICS)) + "|", flush=True)
    is_grid = len(options.rates) * len(options.update_epochs) > 1
    latest = base
    for number in range(1 if is_grid else options.weeks):
        end = first + WEEK * (number + 1)
        table = Table(events, end, options.test_events)
        table.add("stale", base)
        for rate in options.rates:
            for epochs in options.update_epochs:
                own = update_recipe(recipe).with_changes(
                    [f"training.learning_rate={rate}", f"training.epochs={epochs}"]
                )
                name = f"update, rate {rate:g}, {epochs} epochs"
                folder = options.runs / f"update-{number}-{rate:g}-{epochs}"
                updated = train(folder, own, events, end=end, start=latest.recommender)
                table.add(name, updated)
        latest = updated
        if not is_grid:
            table.add("retrain", train(options.runs / f"retrain-{number}", recipe, events, end=end))


def train(folder: Path, recipe: Recipe, events: Interactions, *, end: int, start: Recommender | None = None) -> Trained:
    """Train on the events before a time, or on the last week of them from a start; or read the result of a run."""
    result = folder / "result.json"
    if not result.exists():
        split = weekly_split(events, end)
        before = time.process_time()
        Recommender.fit(
            split.interactions,
            recipe,
            split=split,
            start=start,
            since=None if start is None else end - WEEK - 1,
            folder=folder,
            save_to=folder / "model",
            overwrite=True,
        )
        result.write_text(json.dumps({"seconds": time.process_time() - before}))
    return Trained(Recommender.load(folder / "model"), json.loads(result.read_text())["seconds"])


def until(events: Interactions, end: int) -> Interactions:
    """Return the events before a time, with all users and items."""
    is_kept = events.timestamps < end  # (E,)
    return dataclasses.replace(
        events,
        users=events.users[is_kept],
        items=events.items[is_kept],
        timestamps=events.timestamps[is_kept],
        ratings=None,
    )


def weekly_split(events: Interactions, end: int) -> Split:
    """Return the events before a time; the last one of each user of the last week picks the epoch."""
    known = until(events, end)
    starts, ends = known.offsets[:-1], known.offsets[1:]  # (U,)
    is_active = torch.zeros(known.num_users, dtype=torch.bool)
    is_active[known.users[known.timestamps >= end - WEEK]] = True
    users = (is_active & (ends - starts > 1)).nonzero().flatten()  # (n,)
    train_ends = ends.clone()
    train_ends[users] -= 1
    held_out = HeldOut(users, known.items[ends[users] - 1], ends[users] - 1)
    return Split(
        known, train_ends, held_out, held_out, f"events before {end}; the last of each active user picks the epoch"
    )


class Table:
    """Rows of the table for the week that ends at a time; tests are of the week that follows."""

    def __init__(self, events: Interactions, end: int, num_tests: int) -> None:
        self._events = until(events, end + WEEK)
        self._end = end
        times = self._events.timestamps
        self._num_events = int(((times >= end - WEEK) & (times < end)).sum())
        has_history = torch.arange(len(times)) > self._events.offsets[self._events.users]  # (E,)
        rows = ((times >= end) & has_history).nonzero().flatten()
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:num_tests]
        rows = rows[drawn].sort().values  # (n,)
        self._tests = HeldOut(self._events.users[rows], self._events.items[rows], rows)

    def add(self, name: str, trained: Trained) -> None:
        """Test a model and print its row."""
        ranks = rank_held_out(trained.recommender.model, self._events, self._tests)  # (n,)
        found = Evaluation.of_ranks(ranks, cutoffs=(10,), protocol="the following week").metrics
        card = trained.recommender.card
        cells = [
            time.strftime("%Y-%m-%d", time.gmtime(self._end)),
            f"{self._num_events:,}",
            name,
            f"{len(ranks):,}",
            *(f"{found[metric]:.4f}" for metric in METRICS),
            f"{card.best_epoch} of {card.num_epochs}",
            "" if name == "stale" else f"{trained.seconds:,.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
