"""A text retriever as a folder: config.json, encoder/, similarity/ and a model card."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from railsearch.encoders import TextEncoder
from railsearch.encoders.text.folder import FORMAT as ENCODER_FORMAT
from railsearch.folders import CARD_FILE, FolderFormat, ModelCard, load_similarity, save_similarity, writing
from railsearch.folders.similarity_folder import FORMAT as SIMILARITY_FORMAT
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.files import settled_folder
from railsearch.models import TextModel
from railsearch.text_retriever.recipe import TextRecipe

ENCODER = "encoder"
SIMILARITY = "similarity"
FORMAT = FolderFormat(
    "railsearch.text_retriever",
    2,
    noun="text retriever",
    writer="TextRetriever.save",
    free=frozenset({CARD_FILE}),
    inner={ENCODER: ENCODER_FORMAT, SIMILARITY: SIMILARITY_FORMAT},
)


@dataclass(frozen=True, slots=True, eq=False)
class SavedRetriever:
    """The content of a model folder."""

    model: TextModel
    recipe: TextRecipe
    card: ModelCard | None
    fingerprint: str


def write_retriever(saved: SavedRetriever, target: Path, *, overwrite: bool) -> None:
    """Write the folder; if the process is killed at any moment, the old or the new one remains."""
    config = {
        "fingerprint": saved.fingerprint,
        "recipe": saved.recipe.model_dump(mode="json"),
        "card": None if saved.card is None else dataclasses.asdict(saved.card),
    }
    with writing(FORMAT, target, overwrite=overwrite) as folder:
        saved.model.encoder.save(folder / ENCODER)
        save_similarity(saved.model.similarity, folder / SIMILARITY)
        if saved.card is not None:
            (folder / CARD_FILE).write_text(saved.card.to_markdown(saved.recipe))
        FORMAT.write(folder, config)


def read_retriever(path: Path) -> SavedRetriever:
    """Read a folder, on the CPU and ready to search with; refuse one that is damaged or foreign."""
    folder = settled_folder(path)
    config = FORMAT.read(folder)
    try:
        recipe = TextRecipe(**config["recipe"])
        card = None if config["card"] is None else ModelCard(**config["card"])
        model = TextModel(encoder=TextEncoder.load(folder / ENCODER), similarity=load_similarity(folder / SIMILARITY))
        fingerprint = str(config["fingerprint"])
    except (InvalidInputError, TypeError, KeyError) as error:
        raise ModelFolderError(f"{folder} is inconsistent ({error}); restore it from a copy.") from error
    return SavedRetriever(model.train(False), recipe, card, fingerprint)
