"""A recommender as a folder: config.json, model.safetensors, items.parquet, their popularity, and a model card."""

import dataclasses
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import xxhash
from torch import Tensor

from railsearch.folders import (
    CARD_FILE,
    SEGMENTS_PLOT,
    TRAINING_PLOT,
    WEIGHTS_FILE,
    FolderFormat,
    ModelCard,
    fill,
    pack_weights,
    unpack_weights,
    writing,
)
from railsearch.foundation.errors import FingerprintError, InvalidInputError, ModelFolderError
from railsearch.foundation.files import settled_folder
from railsearch.models import SequentialModel
from railsearch.recommender.plots import draw_plots
from railsearch.recommender.recipe import Recipe, build_encoder, build_similarity
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.similarity.registry import kind_of

if TYPE_CHECKING:
    from polars import DataFrame, Series

ITEMS_FILE = "items.parquet"
USERS_FILE = "users.parquet"
COUNTS_FILE = "popularity.parquet"
FEATURES = "encoder.item_table.features"
"""Name of the weight that holds the features of items."""
FORMAT = FolderFormat(
    "railsearch.recommender",
    2,
    noun="recommender",
    writer="Recommender.save",
    files=frozenset({WEIGHTS_FILE, ITEMS_FILE, USERS_FILE, COUNTS_FILE, SEGMENTS_PLOT, TRAINING_PLOT}),
    free=frozenset({CARD_FILE}),
)


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The same model before items were added to it: its fingerprint, and how many items it had."""

    fingerprint: str
    num_items: int


@dataclass(frozen=True, slots=True, eq=False)
class SavedRecommender:
    """The content of a model folder."""

    model: SequentialModel
    recipe: Recipe
    card: ModelCard
    items: "DataFrame"
    user_ids: "Series | None"
    item_counts: Tensor | None  # (N,) training events of each item; older folders hold none
    fingerprint: str
    ancestors: tuple[Ancestor, ...] = ()
    """The models before each addition of items, oldest first."""


def fingerprint_of(model: SequentialModel, items: "DataFrame") -> str:
    """Return the name of a model's content: kinds, settings and weights, and the ids of its items in their order."""
    encoder, similarity = model.encoder, model.similarity
    ids = xxhash.xxh3_128_hexdigest("\n".join(map(repr, items["item"])).encode())
    settings = {f"encoder.{name}": value for name, value in encoder.config.items()}
    settings |= {f"similarity.{name}": value for name, value in similarity.config.items()}
    settings |= {"encoder": encoder.kind, "similarity": kind_of(similarity), "items": ids}
    return compute_fingerprint("recommender", settings, dict(model.state_dict()))


def write_recommender(saved: SavedRecommender, target: Path, *, overwrite: bool) -> None:
    """Write the folder; if the process is killed at any moment, the old or the new one remains."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    config: dict[str, object] = {
        "fingerprint": saved.fingerprint,
        "recipe": saved.recipe.model_dump(mode="json"),
        "card": dataclasses.asdict(saved.card),
    }
    if saved.ancestors:
        config["ancestors"] = [dataclasses.asdict(each) for each in saved.ancestors]
    with writing(FORMAT, target, overwrite=overwrite) as folder:
        (folder / WEIGHTS_FILE).write_bytes(pack_weights(saved.model.state_dict()))
        saved.items.write_parquet(folder / ITEMS_FILE)
        if saved.user_ids is not None:
            saved.user_ids.to_frame("user").write_parquet(folder / USERS_FILE)
        if saved.item_counts is not None:
            pl.DataFrame({"events": saved.item_counts.numpy()}).write_parquet(folder / COUNTS_FILE)
        plots = draw_plots(saved.card, folder)
        (folder / CARD_FILE).write_text(saved.card.to_markdown(saved.recipe, plots))
        FORMAT.write(folder, config)


def read_recommender(path: Path) -> SavedRecommender:
    """Read a folder, on the CPU and ready to recommend; refuse one that is damaged or foreign."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    folder = settled_folder(path)
    config = FORMAT.read(folder)
    contents = {name: FORMAT.read_file(folder, config, name) for name in {WEIGHTS_FILE, ITEMS_FILE, *config["files"]}}
    tensors = unpack_weights(contents[WEIGHTS_FILE], folder / WEIGHTS_FILE)
    try:
        recipe, card = Recipe(**config["recipe"]), ModelCard(**config["card"])
        items = pl.read_parquet(io.BytesIO(contents[ITEMS_FILE]))
        users = pl.read_parquet(io.BytesIO(contents[USERS_FILE]))["user"] if USERS_FILE in contents else None
        counts = _read_counts(contents[COUNTS_FILE], len(items)) if COUNTS_FILE in contents else None
        if recipe.encoder.num_blocks > len(tensors):  # a million blocks take memory even without weights
            raise InvalidInputError(f"num_blocks is {recipe.encoder.num_blocks} but there are {len(tensors)} weights")
        with torch.device("meta"):  # no memory is taken before the weights are known to fit
            model = SequentialModel(
                encoder=build_encoder(
                    recipe, num_items=len(items), seed=None, feature_dim=_feature_dim(recipe, tensors)
                ),
                similarity=build_similarity(recipe, seed=None),
            )
        fill(model, tensors, folder / WEIGHTS_FILE)
        stated = str(config["fingerprint"])
        ancestors = tuple(
            Ancestor(str(each["fingerprint"]), int(each["num_items"])) for each in config.get("ancestors", ())
        )
    except (InvalidInputError, TypeError, KeyError, RuntimeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ModelFolderError(f"{folder} is inconsistent ({error}); restore it from a copy.") from error
    found = fingerprint_of(model, items)
    if found != stated:
        raise FingerprintError(f"{folder} states model {stated} but holds {found}; restore it from a copy.")
    return SavedRecommender(model.train(False), recipe, card, items, users, counts, found, ancestors)


def _feature_dim(recipe: Recipe, tensors: Mapping[str, Tensor]) -> int | None:
    """Return how many features each item has; None if the recipe names none."""
    if recipe.encoder.item_features is None:
        return None
    if FEATURES not in tensors or tensors[FEATURES].ndim != 2:
        raise InvalidInputError(f"encoder.item_features is set but {WEIGHTS_FILE} holds no {FEATURES}")
    return tensors[FEATURES].shape[1]


def _read_counts(content: bytes, num_items: int) -> Tensor:
    """Return the training events (N,) of each item."""
    import polars as pl  # noqa: PLC0415

    counts = pl.read_parquet(io.BytesIO(content))["events"]
    if counts.dtype != pl.Int64 or len(counts) != num_items or counts.null_count() or (counts < 0).any():
        raise InvalidInputError(f"{COUNTS_FILE} does not hold a count for each of the {num_items} items")
    return torch.from_numpy(counts.to_numpy(writable=True))
