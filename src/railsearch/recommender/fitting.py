"""The training run of a recommender: the model of a recipe, trained on a split."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash
from torch import Tensor

from railsearch.data import Split
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.recommender.features import features_of
from railsearch.recommender.recipe import Recipe, build_encoder, build_similarity, starts_as_cosine
from railsearch.recommender.warm_start import copy_weights
from railsearch.similarity import MixtureConfig
from railsearch.training import FitReport
from railsearch.training.loop import train
from railsearch.training.processes import Processes
from railsearch.training.tasks.histories import NextItemTask

if TYPE_CHECKING:
    from polars import Series


COSINE_START_RATE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A trained model to start from, the ids of its items and of the users in its user table, and its fingerprint."""

    model: SequentialModel
    item_ids: "Series"
    user_ids: "Series | None"
    fingerprint: str


def train_model(
    recipe: Recipe,
    split: Split,
    *,
    start: TrainedModel | None,
    folder: Path | None,
    processes: Processes,
    show_progress: bool | None,
) -> tuple[SequentialModel, FitReport]:
    """Build the model of a recipe and train it on a split; return it with the weights of the best epoch.

    With a start, the weights begin as those of a trained model, and the start is validated as epoch 0.
    """
    _check_user_table(recipe, split.interactions.num_users)
    features = features_of(recipe, split.interactions)  # (N, F)
    model = _build(recipe, num_items=split.interactions.num_items, features=features)
    about = describe_run(recipe, split)
    if features is not None:
        about["features"] = f"checksum {xxhash.xxh3_64_hexdigest(features.numpy().tobytes())}"
    if start is not None:
        events = split.interactions
        copy_weights(
            model,
            events.item_ids,
            start.model,
            start.item_ids,
            has_same_users=start.user_ids is not None and start.user_ids.equals(events.user_ids),
        )
        about["start"] = start.fingerprint
    report = train(
        NextItemTask(model, split, recipe.training),
        recipe.training,
        folder=folder,
        about=about,
        processes=processes,
        rate_factors=_rate_factors(recipe, model),
        validates_start=start is not None,
        unit="users",
        show_progress=show_progress,
    )
    return model, report


def _rate_factors(recipe: Recipe, model: SequentialModel) -> dict[str, float]:
    """Return by which factor the learning rate of each weight of the similarity differs from that of the encoder.

    A mixture that starts as a cosine first lets the embeddings take shape: components that move apart as fast as the
    embeddings are learned slow this down.
    """
    factor = recipe.training.similarity_rate
    if factor is None:
        factor = COSINE_START_RATE if starts_as_cosine(recipe) else 1.0
    return {name: factor for name, _ in model.named_parameters() if name.startswith("similarity.")}


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
