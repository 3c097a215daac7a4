"""A recommender as a folder: config.json, model.safetensors, items.parquet and a model card; whole or absent."""

import dataclasses
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import xxhash
from safetensors import SafetensorError

from railsearch.folders.sealed import CONFIG_FILE, ConfigFormat
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.files import new_folder, settled_folder
from railsearch.models import SequentialModel
from railsearch.recommender.card import ModelCard
from railsearch.recommender.recipe import Recipe, build_encoder, build_similarity

if TYPE_CHECKING:
    from polars import DataFrame, Series

FORMAT = ConfigFormat("railsearch.recommender", 1, what="recommender", writer="Recommender.save")
WEIGHTS_FILE = "model.safetensors"
ITEMS_FILE = "items.parquet"
USERS_FILE = "users.parquet"
CARD_FILE = "README.md"
FILES = {CONFIG_FILE, WEIGHTS_FILE, ITEMS_FILE, USERS_FILE, CARD_FILE}


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """What a model folder holds."""

    model: SequentialModel
    recipe: Recipe
    card: ModelCard
    items: "DataFrame"
    user_ids: "Series | None"


def write_model_folder(saved: Saved, target: Path, *, overwrite: bool) -> None:
    """Write the folder; a kill at any moment leaves the old one or the new one."""
    current = settled_folder(target)
    if current.exists() and not overwrite:
        raise InvalidInputError(f"{target} exists already; choose another path or pass overwrite=True.")
    if current.exists() and not _is_ours(current):
        raise InvalidInputError(
            f"{target} holds other files than a railsearch recommender, and will not be replaced; choose another path."
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in saved.model.state_dict().items()}
    contents = {WEIGHTS_FILE: safetensors.torch.save(tensors), ITEMS_FILE: _as_parquet(saved.items)}
    if saved.user_ids is not None:
        contents[USERS_FILE] = _as_parquet(saved.user_ids.to_frame("user"))
    config = {
        "recipe": saved.recipe.model_dump(mode="json"),
        "card": dataclasses.asdict(saved.card),
        "files": {name: xxhash.xxh3_128_hexdigest(content) for name, content in contents.items()},
    }
    try:
        with new_folder(target, replaces=overwrite) as folder:
            for name, content in contents.items():
                (folder / name).write_bytes(content)
            (folder / CARD_FILE).write_text(saved.card.to_markdown(saved.recipe))
            FORMAT.write(folder, config)
    except OSError as error:
        raise ModelFolderError(f"{target} cannot be written ({error}); nothing was changed.") from error


def read_model_folder(path: Path) -> Saved:
    """Read a folder, on the CPU and ready to recommend; refuse what is damaged or foreign."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    folder = settled_folder(path)
    config = FORMAT.read(folder)
    if not all(isinstance(config.get(name), dict) for name in ("recipe", "card", "files")):
        raise ModelFolderError(f"{folder / CONFIG_FILE} lacks recipe, card or files; restore it from a copy.")
    contents = {name: _read(folder / name, digest) for name, digest in config["files"].items()}
    try:
        recipe, card = Recipe(**config["recipe"]), ModelCard(**config["card"])
        items = pl.read_parquet(contents[ITEMS_FILE])
        users = pl.read_parquet(contents[USERS_FILE])["user"] if USERS_FILE in contents else None
        model = SequentialModel(
            encoder=build_encoder(recipe, num_items=len(items)), similarity=build_similarity(recipe)
        )
        model.load_state_dict(safetensors.torch.load(contents[WEIGHTS_FILE]))
    except (InvalidInputError, TypeError, KeyError, RuntimeError, SafetensorError, pl.exceptions.PolarsError) as error:
        raise ModelFolderError(f"{folder} does not hold together ({error}); restore it from a copy.") from error
    model.train(False)
    return Saved(model, recipe, card, items, users)


def _read(file: Path, digest: str) -> bytes:
    if file.name not in FILES:
        raise ModelFolderError(f"{file.parent} names a file that no recommender has; restore it from a copy.")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy of the folder.") from error
    if xxhash.xxh3_128_hexdigest(content) != digest:
        raise ModelFolderError(f"{file} was changed or damaged after saving; restore it from a copy.")
    return content


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a recommender that we wrote, and nothing else."""
    return folder.is_dir() and not {file.name for file in folder.iterdir()} - FILES and FORMAT.is_in(folder)


def _as_parquet(table: "DataFrame") -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
