"""A text retriever as a folder: config.json, encoder/, similarity/ and a model card; whole or absent."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from railsearch.encoders import TextEncoder
from railsearch.folders.sealed import CONFIG_FILE, ConfigFormat
from railsearch.folders.similarity_folder import load_similarity, save_similarity
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.files import new_folder, settled_folder
from railsearch.models import TextModel
from railsearch.text_retriever.card import TextCard
from railsearch.text_retriever.recipe import TextRecipe

FORMAT = ConfigFormat("railsearch.text_retriever", 1, what="text retriever", writer="TextRetriever.save")
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
    config = {
        "fingerprint": saved.fingerprint,
        "recipe": saved.recipe.model_dump(mode="json"),
        "card": None if saved.card is None else dataclasses.asdict(saved.card),
    }
    try:
        with new_folder(target, replaces=overwrite) as folder:
            saved.model.encoder.save(folder / ENCODER)
            save_similarity(saved.model.similarity, folder / SIMILARITY)
            if saved.card is not None:
                (folder / CARD_FILE).write_text(saved.card.to_markdown(saved.recipe))
            FORMAT.write(folder, config)
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
    config = FORMAT.read(folder)
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
    return FORMAT.is_in(settled_folder(folder))
