"""The training run of a recommender: the model of a recipe, trained on a split."""

from dataclasses import dataclass
from pathlib import Path

import xxhash
from torch import Tensor

from railsearch.data import Split
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.recommender.features import features_of
from railsearch.recommender.recipe import Recipe, build_encoder, build_similarity, starts_as_cosine
from railsearch.recommender.teaching import ask_about_users
from railsearch.recommender.updating import TrainedModel
from railsearch.recommender.warm_start import copy_weights
from railsearch.similarity import DotProduct, MixtureConfig
from railsearch.training import FitReport, TrainingConfig
from railsearch.training.checkpoints import recorded_settings
from railsearch.training.cosine_first import CosineFirstTask, plain_similarity
from railsearch.training.loop import train
from railsearch.training.processes import Processes
from railsearch.training.run_folder import check_run_folder
from railsearch.training.task import FirstPhase, Task
from railsearch.training.tasks.distilled import DistilledTask
from railsearch.training.tasks.histories import NextItemTask
from railsearch.training.tasks.students import HistoryStudent
from railsearch.training.teacher import TeacherLike

COSINE_START_RATE = 0.1
TEMPERATURE = "similarity.own_temperature."
GATE = ("similarity.gate.",)
PROJECTIONS = ("similarity.query_network.", "similarity.item_network.")
COSINE_SHARE = (2, 3)
"""Share of the epochs in which a mixture that starts as a cosine is trained as one, as a fraction."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRun:
    """A training run that can start: the model with its first weights, and all that the loop takes."""

    model: SequentialModel
    task: Task
    config: TrainingConfig
    about: dict[str, object]
    rate_factors: dict[str, float]
    first_phase: FirstPhase | None


def train_model(
    recipe: Recipe,
    split: Split,
    *,
    start: TrainedModel | None,
    folder: Path | None,
    processes: Processes,
    show_progress: bool | None,
    teacher: TeacherLike | None = None,
) -> tuple[SequentialModel, FitReport]:
    """Build the model of a recipe and train it on a split; return it with the weights of the best epoch.

    With a start, the weights begin as those of a trained model, and the start is validated as epoch 0. The first rows
    of items and users are those of the start. A teacher replaces the file that the recipe names.
    """
    if folder is not None:
        check_run_folder(folder)
    planned = plan_run(recipe, split, start=start, folder=folder, teacher=teacher, show_progress=show_progress)
    report = train(
        planned.task,
        planned.config,
        folder=folder,
        about=planned.about,
        processes=processes,
        rate_factors=planned.rate_factors,
        first_phase=planned.first_phase,
        validates_start=start is not None,
        unit="users",
        show_progress=show_progress,
    )
    return planned.model, report


def plan_run(
    recipe: Recipe,
    split: Split,
    *,
    start: TrainedModel | None,
    folder: Path | None,
    teacher: TeacherLike | None = None,
    show_progress: bool | None = None,
) -> PlannedRun:
    """Build the model of a recipe, and the task that trains it on a split; check the settings against both."""
    _check_user_table(recipe, split.interactions.num_users)
    features = features_of(recipe, split.interactions)  # (N, F)
    model = _build(recipe, num_items=split.interactions.num_items, features=features)
    about = describe_run(recipe, split)
    if features is not None:
        about["features"] = f"checksum {xxhash.xxh3_64_hexdigest(features.numpy().tobytes())}"
    if start is not None:
        copy_weights(model, start.model, item_counts=start.item_counts)
    about["start"] = None if start is None else start.fingerprint  # a run without a start is not resumed with one
    config, plain = _resolve_cosine_epochs(recipe, model, folder, has_start=start is not None)
    factors = _rate_factors(recipe, model)
    fixed = frozenset(name for name in factors if not name.startswith(TEMPERATURE))
    task: Task = NextItemTask(model, split, config) if plain is None else CosineFirstTask(model, plain, split, config)
    teacher = config.teacher if teacher is None else teacher
    about["teacher scores"] = None
    if teacher is not None:
        scores = ask_about_users(teacher, model, split, config, show_progress=show_progress)
        task = DistilledTask(task, HistoryStudent(model, split, plain), scores, config)
        about["teacher scores"] = scores.checksum()
    return PlannedRun(
        model=model,
        task=task,
        config=config,
        about=about,
        rate_factors=factors,
        first_phase=None if plain is None else FirstPhase(config.cosine_epochs or 0, fixed),
    )


def _resolve_cosine_epochs(
    recipe: Recipe, model: SequentialModel, folder: Path | None, *, has_start: bool
) -> tuple[TrainingConfig, DotProduct | None]:
    """Return the settings with the number of epochs in which the model is trained as a cosine, and that cosine.

    The default depends on the number of epochs, so a run that resumes with more epochs keeps the number that it
    recorded. A run that recorded none is older than this setting, and has no such epochs.
    """
    config, plain = recipe.training, plain_similarity(model.similarity)
    count = config.cosine_epochs
    if count and plain is None:
        raise InvalidInputError(
            f"training.cosine_epochs is {count} but the similarity does not start as a cosine (a user table, a random "
            "start, another kind, or a trained mixture to start from); set training.cosine_epochs=0."
        )
    if count is None:
        recorded = None if folder is None else recorded_settings(folder)
        if recorded is not None:
            kept = recorded.get("cosine_epochs")
            count = kept if isinstance(kept, int) else 0
        else:
            count = 0 if plain is None or has_start else config.epochs * COSINE_SHARE[0] // COSINE_SHARE[1]
    return config.model_copy(update={"cosine_epochs": count}), plain if count else None


def _rate_factors(recipe: Recipe, model: SequentialModel) -> dict[str, float]:
    """Return by which factor the learning rate of each weight of the similarity differs from that of the encoder.

    A learned temperature has the rate of the encoder.

    A mixture that starts as a cosine first lets the embeddings take shape: components that move apart as fast as the
    embeddings are learned slow this down.
    """
    config = recipe.training
    factor = config.similarity_rate
    if factor is None:
        factor = COSINE_START_RATE if starts_as_cosine(recipe) else 1.0
    factors = {name: factor for name, _ in model.named_parameters() if name.startswith("similarity.")}
    factors |= dict.fromkeys((name for name in factors if name.startswith(TEMPERATURE)), 1.0)
    for setting, own, prefixes in (
        ("gate_rate", config.gate_rate, GATE),
        ("projection_rate", config.projection_rate, PROJECTIONS),
    ):
        if own is None:
            continue
        names = [name for name in factors if name.startswith(prefixes)]
        if not names:
            raise InvalidInputError(
                f"training.{setting} is {own:g} but {recipe.similarity.kind} has no such weights; omit {setting}."
            )
        factors |= dict.fromkeys(names, own)
    return factors


def describe_run(recipe: Recipe, split: Split) -> dict[str, object]:
    """Return everything that identifies a training run besides its training settings: the model, and every event."""
    events = split.interactions
    digest = xxhash.xxh3_64()
    for values in (events.users, events.items, events.timestamps, split.train_ends):
        digest.update(values.numpy().tobytes())
    settings = {
        f"{section}.{name}": value
        for section in ("encoder", "similarity")
        for name, value in getattr(recipe, section).model_dump(mode="json").items()
    }
    return {**settings, "split": split.protocol, "data": f"{len(events):,} events with checksum {digest.hexdigest()}"}


def _check_user_table(recipe: Recipe, num_users: int) -> None:
    """Check that every user has a row of the user table, unless the recipe lets users share rows."""
    config = recipe.similarity
    if not isinstance(config, MixtureConfig) or config.user_table_size is None or config.user_table_hashing:
        return
    if config.user_table_size < num_users:
        raise InvalidInputError(
            f"similarity.user_table_size is {config.user_table_size} but there are {num_users} users; set it to "
            f"{num_users} or more, or set similarity.user_table_hashing=true to let users share rows."
        )


def _build(recipe: Recipe, *, num_items: int, features: Tensor | None) -> SequentialModel:
    seed = recipe.training.seed
    try:
        return SequentialModel(
            encoder=build_encoder(recipe, num_items=num_items, seed=seed, features=features),
            similarity=build_similarity(recipe, seed=seed),
        )
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:  # sizes that do not fit into memory
        cause = str(error).partition("\n")[0]
        raise InvalidInputError(f"the model of this recipe cannot be built ({cause}); choose smaller sizes.") from error
