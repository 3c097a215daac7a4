"""A comparison of recommenders: popularity, ItemKNN, and a sequence encoder with a cosine and with a mixture."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from railsearch.baselines import Baseline, ItemKNN, Popularity
from railsearch.benchmark import describe_machine
from railsearch.comparison.cost import (
    BATCH_SIZE,
    DEPTH,
    MOST_QUERIES,
    Search,
    bytes_per_item,
    index_search,
    time_searches,
)
from railsearch.comparison.embeddings import MIXTURE
from railsearch.comparison.report import Comparison, System
from railsearch.data import Split
from railsearch.evaluation import Evaluation, evaluate_test
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.progress import announce
from railsearch.models import SequentialModel, histories_between
from railsearch.models.sequential import consecutive_rows
from railsearch.recommender import Recipe, Recommender
from railsearch.recommender.card import describe_recommender
from railsearch.recommender.features import items_of
from railsearch.recommender.fitting import train_model
from railsearch.similarity import CosineConfig, MixtureConfig
from railsearch.training import FitReport
from railsearch.training.processes import Processes


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One system: its evaluations, its training, and how it is searched."""

    name: str
    evaluations: tuple[Evaluation, ...]
    seconds: float
    best_epochs: tuple[int, ...]
    search: Search
    bytes_per_item: int


def compare_recommenders(
    recipe: Recipe, split: Split, *, num_runs: int, folder: Path | None, show_progress: bool | None
) -> Comparison:
    """Fit and measure each system on the same split.

    Args:
        recipe: encoder and training of the learned systems; its mixture, or the default one if it has none.
        split: events to train on, to pick the epoch, and to measure.
        num_runs: training runs of each learned system; the seeds count from the recipe's.
        folder: folder for checkpoints and models; None keeps nothing.
        show_progress: as in `Recommender.fit`.
    """
    if split.validation is None:
        raise InvalidInputError("the split has no validation items, so the test would pick the epoch; split with them.")
    users = _TimedUsers.of_split(split)
    mixture = MixtureConfig() if isinstance(recipe.similarity, CosineConfig) else recipe.similarity
    name = MIXTURE if isinstance(mixture, MixtureConfig) else mixture.kind
    measured = [
        _fit_baseline("popularity", lambda: Popularity.fit(split), users),
        _fit_baseline("ItemKNN", lambda: ItemKNN.fit(split), users),
        *(
            _train(
                own_name,
                recipe.model_copy(update={"similarity": similarity}),
                users,
                num_runs=num_runs,
                folder=folder,
                show_progress=show_progress,
            )
            for own_name, similarity in (("cosine", cosine_for(recipe)), (name, mixture))
        ),
    ]
    milliseconds = time_searches([own.search for own in measured], num_queries=len(users))
    systems = [
        System(
            name=own.name,
            evaluations=own.evaluations,
            training_seconds=own.seconds,
            best_epochs=own.best_epochs,
            search_milliseconds=spent,
            bytes_per_item=own.bytes_per_item,
        )
        for own, spent in zip(measured, milliseconds, strict=True)
    ]
    return Comparison.of_systems(
        systems,
        unit="users",
        protocol=split.protocol,
        notes=_notes(recipe, num_runs, len(users)),
        machine=describe_machine(),
    )


def cosine_for(recipe: Recipe) -> CosineConfig:
    """Return the cosine of a recipe, or one that treats the temperature as the recipe's mixture does.

    >>> cosine_for(Recipe(similarity=MixtureConfig(temperature=0.1, learns_temperature=True)))
    CosineConfig(kind='cosine', temperature=0.1, learns_temperature=True, epsilon=1e-06)
    """
    config = recipe.similarity
    if isinstance(config, CosineConfig):
        return config
    if not isinstance(config, MixtureConfig):
        return CosineConfig()
    return CosineConfig(temperature=config.temperature, learns_temperature=config.learns_temperature)


@dataclass(frozen=True, slots=True, eq=False)
class _TimedUsers:
    """The test users whose searches are timed, and the events of their histories."""

    split: Split
    users: Tensor  # (B,)
    starts: Tensor  # (B,)
    ends: Tensor  # (B,)

    @classmethod
    def of_split(cls, split: Split) -> "_TimedUsers":
        users = split.test.users[:MOST_QUERIES]
        return cls(split, users, split.interactions.offsets[users], split.test.history_ends[:MOST_QUERIES])

    def __len__(self) -> int:
        return len(self.users)

    def baseline_search(self, baseline: Baseline) -> Search:
        """Return a search that scores all items and selects the best, in batches."""
        events = self.split.interactions
        k = min(DEPTH, events.num_items)
        lengths = torch.split(self.ends - self.starts, BATCH_SIZE)
        items = [
            events.items[consecutive_rows(starts, own)]
            for starts, own in zip(torch.split(self.starts, BATCH_SIZE), lengths, strict=True)
        ]

        def search() -> None:
            for own, count in zip(items, lengths, strict=True):
                baseline.score_rows(own, count).topk(k)

        return search

    def model_search(self, model: SequentialModel) -> Search:
        """Return a search of an index of the model's items; the histories are encoded here."""
        events = self.split.interactions
        histories = histories_between(events, self.starts, self.ends, max_length=model.encoder.max_length)
        user_ids = self.users if model.similarity.takes_user_ids else None
        items = model.encoder.embed_items().detach()
        return index_search(model.similarity, items, model.encode(histories), user_ids)


def _fit_baseline(name: str, fit: Callable[[], Popularity | ItemKNN], users: _TimedUsers) -> Measured:
    started = time.perf_counter()
    baseline = fit()
    seconds = time.perf_counter() - started
    num_items = users.split.interactions.num_items
    if isinstance(baseline, Popularity):
        tensors = [baseline.item_scores]
    else:
        tensors = [baseline.neighbors.offsets, baseline.neighbors.rows, baseline.neighbors.similarities]
    return Measured(
        name=name,
        evaluations=(baseline.evaluate(users.split),),
        seconds=seconds,
        best_epochs=(),
        search=users.baseline_search(baseline),
        bytes_per_item=round(sum(tensor.numel() * tensor.element_size() for tensor in tensors) / num_items),
    )


def _train(
    name: str,
    recipe: Recipe,
    users: _TimedUsers,
    *,
    num_runs: int,
    folder: Path | None,
    show_progress: bool | None,
) -> Measured:
    models: list[SequentialModel] = []
    evaluations: list[Evaluation] = []
    reports: list[FitReport] = []
    for run in range(num_runs):
        seed = recipe.training.seed + run
        own = recipe.model_copy(update={"training": recipe.training.model_copy(update={"seed": seed})})
        announce(f"training: {name}, seed {seed}", is_shown=show_progress)
        own_folder = None if folder is None else folder / f"{name.replace(' ', '-').lower()}-{seed}"
        model, report = train_model(
            own, users.split, start=None, folder=own_folder, processes=Processes(), show_progress=show_progress
        )
        evaluation = evaluate_test(model, users.split)
        if own_folder is not None:
            _save(model, own, users.split, report, evaluation, own_folder / "model")
        models.append(model)
        evaluations.append(evaluation)
        reports.append(report)
    return Measured(
        name=name,
        evaluations=tuple(evaluations),
        seconds=sum(report.seconds for report in reports) / num_runs,
        best_epochs=tuple(report.best_epoch for report in reports),
        search=users.model_search(models[0]),
        bytes_per_item=bytes_per_item(models[0].similarity, models[0].encoder.embed_items().detach()),
    )


def _save(  # noqa: PLR0917  (everything that a recommender consists of)
    model: SequentialModel, recipe: Recipe, split: Split, report: FitReport, evaluation: Evaluation, path: Path
) -> None:
    known = split.interactions
    recommender = Recommender(
        model=model,
        recipe=recipe,
        card=describe_recommender(split, recipe, report, evaluation),
        items=items_of(recipe, known),
        user_ids=known.user_ids if model.similarity.takes_user_ids else None,
    )
    recommender.save(path, overwrite=True)


def _notes(recipe: Recipe, num_runs: int, num_timed: int) -> Sequence[str]:
    training = recipe.training
    first = training.seed
    times = "once" if num_runs == 1 else f"{num_runs} times (seeds {first} to {first + num_runs - 1})"
    return (
        f"{recipe.encoder.kind} is trained {times} with each similarity: at most {training.epochs} epochs with batches "
        f"of {training.batch_size} users; validation {training.metric} picks the epoch",
        f"search: the {DEPTH} best of all items by brute force, for {num_timed} users in batches of {BATCH_SIZE}, "
        "after their histories are encoded",
    )
