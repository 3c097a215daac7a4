"""The folder of a pretrained model: a path, a folder inside an installed package, or a name on the Hub."""

import importlib.util
import json
import re
from pathlib import Path

from railsearch.encoders.text.sentence_folder import backbone_folder
from railsearch.foundation.errors import DownloadError, InvalidInputError, ModelFolderError
from railsearch.foundation.extras import missing_extra

PACKAGE = "package:"
"""Prefix of a base inside an installed Python package."""
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
"""Files that are fetched from the Hub: never code, never pickles."""


def find_base(base: str | Path, *, allow_download: bool) -> Path:
    """Return the local folder of a base; only a name on the Hub uses the network, and only if that is allowed."""
    if isinstance(base, str) and base.startswith(PACKAGE):
        return _check(_find_in_package(base.removeprefix(PACKAGE)))
    folder = Path(base)
    if folder.exists():
        return _check(folder)
    if isinstance(base, Path) or HUB_NAME.fullmatch(base) is None:
        raise ModelFolderError(f"{base} does not exist; give a folder that holds a pretrained model.")
    return _check(_find_on_hub(base, allow_download=allow_download))


def _find_in_package(name: str) -> Path:
    """Return the one folder with a config.json; the package is not imported, so that none of its code runs."""
    if not name.isidentifier():
        raise InvalidInputError(f"{PACKAGE}{name} does not name a Python package; give {PACKAGE}NAME.")
    spec = importlib.util.find_spec(name)
    places = None if spec is None else spec.submodule_search_locations
    if not places:
        raise InvalidInputError(
            f"the Python package {name} is not installed; pip install {name.replace('_', '-')}, or give another base."
        )
    files = {file for place in places for file in Path(place).rglob("config.json")}
    found = sorted(
        file.parent for file in files if "model_type" in _read_config(file)
    )  # the configs of other parts have no model_type
    if len(found) != 1:
        raise InvalidInputError(
            f"the Python package {name} holds {len(found)} folders with the config.json of a model but 1 is needed; "
            "give the path of the folder."
        )
    return found[0]


def _find_on_hub(name: str, *, allow_download: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415  (optional: imported only if it is used)
    except ImportError as error:
        raise missing_extra("huggingface_hub", "text") from error
    try:
        return Path(snapshot_download(name, allow_patterns=MODEL_FILES, local_files_only=not allow_download))
    except (OSError, ValueError) as error:
        if allow_download:
            raise DownloadError(
                f"{name} could not be downloaded from the Hugging Face Hub ({error}); check the name and the network."
            ) from error
        raise ModelFolderError(
            f"{name} is neither a folder nor in the local Hugging Face cache, and downloads are off; "
            "give a folder, or pass allow_download=True."
        ) from error


def _check(folder: Path) -> Path:
    """Refuse folders that transformers would unpickle or report unclearly."""
    whole, folder = folder, backbone_folder(folder)
    written_as = str(_read_config(folder / "config.json").get("format", ""))
    if written_as.startswith("railsearch."):
        reader = "TextRetriever.load" if written_as.endswith("retriever") else "TextEncoder.load"
        raise ModelFolderError(f"{folder} was written by railsearch; read it with {reader}.")
    if not any(folder.glob("*.safetensors")):
        pickled = " only pickled ones, which can run code when they are read" if any(folder.glob("*.bin")) else ""
        raise ModelFolderError(
            f"{folder} has no safetensors weights{':' + pickled if pickled else ''}; save the model again with "
            "save_pretrained of a recent transformers."
        )
    return whole


def _read_config(file: Path) -> dict[str, object]:
    try:
        config = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFolderError(
            f"{file} does not exist; give the folder of a Hugging Face model (config.json, model.safetensors and the "
            "tokenizer's files)."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy.") from error
    return config if isinstance(config, dict) else {}
