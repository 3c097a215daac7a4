"""Training runs of several recipes and seeds on the same interactions, resumable, and the ranks of their test items."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railsearch import Recommender
from railsearch.data import leave_last_out, read_prepared
from railsearch.models import rank_held_out
from railsearch.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Run:
    """One recipe with one seed: its folder, as `railsearch train` writes it, and beside it the test ranks."""

    name: str
    seed: int
    recipe: Recipe
    folder: Path
    epoch_seconds: float | None = None
    """Seconds of an epoch and its validation on a quiet machine; None for those that the run took."""

    @property
    def ranks_file(self) -> Path:
        """File with the recipe and the rank of each user's test item."""
        return self.folder.with_name(f"{self.folder.name}.ranks.json")

    def log(self) -> list[dict[str, Any]]:
        """Return the epochs that are done; epoch 0 is the model before training."""
        file = self.folder / "log.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def curve(self) -> dict[int, dict[str, float]]:
        """Return the validation figures of each validated epoch."""
        return {line["epoch"]: line["validation"] for line in self.log() if line["validation"]}

    def minutes(self) -> dict[int, float]:
        """Return the minutes of training and validation up to the end of each epoch."""
        total, passed = 0.0, {}
        for line in self.log():
            is_epoch = self.epoch_seconds is not None and line["epoch"] > 0
            total += (self.epoch_seconds if is_epoch else line["seconds"] + line["validation_seconds"]) / 60
            passed[line["epoch"]] = total
        return passed

    def picked(self) -> int:
        """Return the epoch with the best validation figure of the recipe's metric."""
        curve = self.curve()
        return max(curve, key=lambda epoch: (curve[epoch][self.recipe.training.metric], -epoch))

    def test_ranks(self) -> list[int] | None:
        """Return the rank of each user's test item at the picked epoch; None if the run is not finished."""
        if not self.ranks_file.is_file():
            return None
        found = json.loads(self.ranks_file.read_text())
        ranks: list[int] = found["ranks"]
        return ranks if Recipe.model_validate(found["recipe"]) == self.recipe else None  # new settings have defaults


def plan_runs(
    recipes: Sequence[Path],
    seeds: Sequence[int],
    changes: Sequence[str],
    folder: Path,
    epoch_seconds: Sequence[float] | None = None,
) -> list[Run]:
    """Return the runs: for each seed, all recipes, so that a comparison is complete as early as possible."""
    return [
        Run(
            file.stem,
            seed,
            Recipe.read(file, [*changes, f"training.seed={seed}"]),
            folder / f"{file.stem}-seed{seed}",
            quiet,
        )
        for seed in seeds
        for file, quiet in zip(recipes, epoch_seconds or [None] * len(recipes), strict=True)
    ]


def train(runs: Sequence[Run], data: Path) -> str:
    """Train the runs that are not finished, and return the protocol of the test."""
    interactions = read_prepared(data)
    for run in runs:
        if run.test_ranks() is not None:
            continue
        print(f"{run.folder} ...", flush=True)
        recommender = Recommender.fit(
            interactions, run.recipe, folder=run.folder, save_to=run.folder / "model", overwrite=True
        )
        split = leave_last_out(interactions, has_validation=run.recipe.split.has_validation)
        ranks = rank_held_out(recommender.model, interactions, split.test)
        found = {"recipe": run.recipe.model_dump(mode="json"), "ranks": ranks.tolist()}
        run.ranks_file.write_text(json.dumps(found))
    return leave_last_out(interactions, has_validation=runs[0].recipe.split.has_validation).protocol
