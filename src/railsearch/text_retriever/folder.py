"""A text retriever as a folder: config.json, encoder/, similarity/ and a model card; whole or absent."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from railsearch.encoders import TextEncoder
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.files import new_folder, settled_folder
from railsearch.similarity import load_similarity, save_similarity
from railsearch.text_retriever.card import TextCard
from railsearch.text_retriever.recipe import TextRecipe
from railsearch.training.text import TextModel

FORMAT = "railsearch.text_retriever"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
ENCODER = "encoder"
SIMILARITY = "similarity"
CARD_FILE = "README.md"
ENTRIES = {CONFIG_FILE, ENCODER, SIMILARITY, CARD_FILE}


@dataclass(frozen=True, slots=True, eq=False)
class SavedRetriever:
    """What a model folder holds."""

    model: TextModel
    recipe: TextRecipe
    card: TextCard | None
    fingerprint: str


def write_retriever_folder(saved: SavedRetriever, target: Path, *, overwrite: bool) -> None:
    """Write the folder; a kill at any moment leaves the old one or the new one."""
    check_target(target, overwrite=overwrite)
    config: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fingerprint": saved.fingerprint,
        "recipe": saved.recipe.model_dump(mode="json"),
        "card": None if saved.card is None else dataclasses.asdict(saved.card),
    }
    config["checksum"] = _checksum(config)
    try:
        with new_folder(target, replaces=overwrite) as folder:
            saved.model.encoder.save(folder / ENCODER)
            save_similarity(saved.model.similarity, folder / SIMILARITY)
            if saved.card is not None:
                (folder / CARD_FILE).write_text(saved.card.to_markdown(saved.recipe))
            (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    except OSError as error:
        raise ModelFolderError(f"{target} cannot be written ({error}); nothing was changed.") from error


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse to write where something is that must not be replaced."""
    current = settled_folder(target)
    if current.exists() and not overwrite:
        raise InvalidInputError(f"{target} exists already; choose another path or pass overwrite=True.")
    if current.exists() and not (
        holds_retriever(current) and not {entry.name for entry in current.iterdir()} - ENTRIES
    ):
        raise InvalidInputError(
            f"{target} holds other files than a railsearch text retriever, and will not be replaced; choose another "
            "path."
        )


def read_retriever_folder(path: Path) -> SavedRetriever:
    """Read a folder, on the CPU and ready to search with; refuse what is damaged or foreign."""
    folder = settled_folder(path)
    config = _read_config(folder)
    if config.pop("checksum", None) != _checksum(config):
        raise ModelFolderError(f"{folder / CONFIG_FILE} was changed or damaged after saving; restore it from a copy.")
    try:
        recipe = TextRecipe(**config["recipe"])
        card = None if config["card"] is None else TextCard(**config["card"])
        model = TextModel(encoder=TextEncoder.load(folder / ENCODER), similarity=load_similarity(folder / SIMILARITY))
    except (InvalidInputError, TypeError, KeyError) as error:
        raise ModelFolderError(f"{folder} does not hold together ({error}); restore it from a copy.") from error
    model.train(False)
    return SavedRetriever(model, recipe, card, str(config["fingerprint"]))


def holds_retriever(folder: Path) -> bool:
    """Whether a folder says that it holds a text retriever."""
    try:
        _read_config(settled_folder(folder))
    except ModelFolderError:
        return False
    return True


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_FILE
    try:
        config = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFolderError(f"{file} does not exist; give a folder that TextRetriever.save wrote.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy.") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFolderError(f"{file} is not the config of a railsearch text retriever; give another folder.")
    if config.get("format_version") != FORMAT_VERSION:
        raise ModelFolderError(
            f"{file} has format version {config.get('format_version')} but this railsearch reads {FORMAT_VERSION}; "
            "install the railsearch that wrote it."
        )
    return config


def _checksum(config: dict[str, Any]) -> str:
    """Of what config.json states, but for the checksum itself and however it is laid out."""
    return xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())
