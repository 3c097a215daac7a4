"""A text encoder as a folder: config.json, model.safetensors and tokenizer/."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from railsearch.encoders.text.backbone import load_tokenizer
from railsearch.encoders.text.pretrained import import_transformers, quiet
from railsearch.encoders.text.sentence_head import SentenceHeadConfig, read_head_config
from railsearch.encoders.text.settings import TextEncoderConfig, TokenPlace
from railsearch.folders import WEIGHTS_FILE, FolderFormat, check_shapes, writing
from railsearch.foundation.errors import InvalidInputError, ModelFolderError, StorageError
from railsearch.foundation.files import settled_folder

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PreTrainedTokenizerFast

TOKENIZER_FOLDER = "tokenizer"
FORMAT = FolderFormat(
    "railsearch.text_encoder",
    1,
    noun="text encoder",
    writer="TextEncoder.save",
    files=frozenset({WEIGHTS_FILE, TOKENIZER_FOLDER}),
)


@dataclass(frozen=True, slots=True, eq=False)
class SavedText:
    """The content of a folder."""

    settings: TextEncoderConfig
    place: TokenPlace
    backbone_config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: "PreTrainedTokenizerFast"
    head: SentenceHeadConfig | None = None


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return all tensors of a module to save; a tensor that a model uses under two names is returned once."""
    kept = module.state_dict(keep_vars=True)
    once = dict(module.named_parameters()) | {name: kept[name] for name, _ in module.named_buffers() if name in kept}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in once.items()}


def fill_encoder(module: nn.Module, tensors: dict[str, Tensor], file: Path) -> None:
    """Put saved tensors into an encoder, with their precision; a tensor that has two names is saved under one."""
    check_shapes(tensors_of(module), tensors, file)
    targets = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in tensors.items():
        targets[name].data = tensor


def write_text_folder(saved: SavedText, target: Path, *, overwrite: bool) -> None:
    """Write the folder; if the process is killed at any moment, the old or the new one remains."""
    config = {
        "settings": saved.settings.model_dump(mode="json"),
        "token_place": saved.place.value,
        "backbone": saved.backbone_config,
    }
    if saved.head is not None:
        config["head"] = saved.head.model_dump(mode="json")
    try:
        with writing(FORMAT, target, overwrite=overwrite) as folder, quiet(import_transformers()):
            safetensors.torch.save_file(saved.tensors, folder / WEIGHTS_FILE)
            saved.tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
            FORMAT.write(folder, config)
    except SafetensorError as error:  # safetensors' own name for a disk that is full
        raise StorageError(f"{target} cannot be written ({error}); nothing was changed.") from error


def read_text_folder(path: Path) -> SavedText:
    """Read a folder, on the CPU; refuse one that is damaged or foreign before any model is built."""
    folder = settled_folder(path)
    config = FORMAT.read(folder)
    FORMAT.check_files(folder, config)
    try:
        settings, place = TextEncoderConfig(**config["settings"]), TokenPlace(config["token_place"])
        tensors = safetensors.torch.load_file(folder / WEIGHTS_FILE)
        backbone = dict(config["backbone"])
        head = read_head_config(config["head"]) if "head" in config else None
    except (InvalidInputError, TypeError, KeyError, ValueError, OSError, SafetensorError) as error:
        raise ModelFolderError(f"{folder} is inconsistent ({error}); restore it from a copy.") from error
    return SavedText(settings, place, backbone, tensors, load_tokenizer(folder / TOKENIZER_FOLDER), head)
