"""A text encoder as a folder: config.json, model.safetensors and tokenizer/; whole or absent, damage is noticed."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from railsearch.encoders.text.backbone import load_tokenizer
from railsearch.encoders.text.pretrained import import_transformers, quiet
from railsearch.encoders.text.settings import TextSettings, TokenPlace
from railsearch.folders.sealed import CONFIG_FILE, ConfigFormat
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.files import describe, new_folder, settled_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FORMAT = ConfigFormat("railsearch.text_encoder", 1, what="text encoder", writer="TextEncoder.save")
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FOLDER = "tokenizer"


@dataclass(frozen=True, slots=True, eq=False)
class SavedText:
    """What the folder of a text encoder holds."""

    settings: TextSettings
    place: TokenPlace
    backbone_config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: "PreTrainedTokenizerFast"


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Give all that has to be kept of a module, each tensor once though a model may use it under two names."""
    kept = module.state_dict(keep_vars=True)
    once = dict(module.named_parameters()) | {name: kept[name] for name, _ in module.named_buffers() if name in kept}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in once.items()}


def fill(module: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    """Put saved tensors into a module, keeping their precision; names and shapes must be the same."""
    wanted = {name: tuple(tensor.shape) for name, tensor in tensors_of(module).items()}
    present = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wanted != present:
        differing = sorted(set(wanted.items()) ^ set(present.items()))[0][0]
        raise ModelFolderError(
            f"{folder / WEIGHTS_FILE} belongs to another model: {differing} is {present.get(differing, 'absent')} "
            f"there but the config needs {wanted.get(differing, 'none')}; restore the folder from a copy."
        )
    targets = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in tensors.items():
        targets[name].data = tensor


def write_text_folder(saved: SavedText, target: Path, *, overwrite: bool) -> None:
    """Write the folder; a kill at any moment leaves the old one or the new one."""
    current = settled_folder(target)
    if current.exists() and not overwrite:
        raise InvalidInputError(f"{target} exists already; choose another path or pass overwrite=True.")
    if current.exists() and not _is_ours(current):
        raise InvalidInputError(
            f"{target} holds other files than a railsearch text encoder, and will not be replaced; choose another path."
        )
    config: dict[str, Any] = {
        "settings": saved.settings.model_dump(mode="json"),
        "token_place": saved.place.value,
        "backbone": saved.backbone_config,
    }
    try:
        with new_folder(target, replaces=overwrite) as folder, quiet(import_transformers()):
            safetensors.torch.save_file(saved.tensors, folder / WEIGHTS_FILE)
            saved.tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            config["files"] = {
                path.relative_to(folder).as_posix(): dataclasses.asdict(describe(path)) for path in files
            }
            FORMAT.write(folder, config)
    except (OSError, SafetensorError) as error:
        raise ModelFolderError(f"{target} cannot be written ({error}); nothing was changed.") from error


def read_text_folder(path: Path) -> SavedText:
    """Read a folder, on the CPU; refuse what is damaged or foreign before anything is made of it."""
    folder = settled_folder(path)
    config = FORMAT.read(folder)
    try:
        settings, place = TextSettings(**config["settings"]), TokenPlace(config["token_place"])
        for name, entry in config["files"].items():
            _check_file(folder / name, entry)
        tensors = safetensors.torch.load_file(folder / WEIGHTS_FILE)
    except (InvalidInputError, TypeError, KeyError, AttributeError, OSError, SafetensorError) as error:
        raise ModelFolderError(f"{folder} does not hold together ({error}); restore it from a copy.") from error
    return SavedText(settings, place, config["backbone"], tensors, load_tokenizer(folder / TOKENIZER_FOLDER))


def _check_file(file: Path, entry: dict[str, object]) -> None:
    try:
        found = dataclasses.asdict(describe(file))
    except OSError as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy of the folder.") from error
    if found != entry:
        raise ModelFolderError(f"{file} was changed or damaged after saving; restore it from a copy.")


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a text encoder that we wrote, and nothing else."""
    entries = {CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FOLDER}
    return folder.is_dir() and not {file.name for file in folder.iterdir()} - entries and FORMAT.is_in(folder)
