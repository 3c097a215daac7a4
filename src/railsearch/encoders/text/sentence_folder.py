"""A folder of sentence-transformers: modules.json, pooling, dense layers and prompts, read without running its code."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from railsearch.encoders.text.sentence_head import (
    Activation,
    DenseConfig,
    LayerConfig,
    LayerNormConfig,
    NormalizeConfig,
    SentenceHeadConfig,
    SentenceMode,
)
from railsearch.encoders.text.settings import Side
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.settings import LARGEST_SIZE

MODULES_FILE = "modules.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
LARGEST_CONFIG = 2**20
"""Bytes of a JSON file of the folder."""
MOST_MODULES = 100
LIBRARY = "sentence_transformers."
INNER_FOLDER = re.compile(r"(\./)?[\w-][\w.-]*/?|\.?")
PROMPTS = {Side.QUERY: ("query",), Side.PASSAGE: ("document", "passage", "corpus")}
"""Names of prompts that the library uses for each side, in this order."""
OLD_MODES = {
    "pooling_mode_cls_token": SentenceMode.CLS,
    "pooling_mode_max_tokens": SentenceMode.MAX,
    "pooling_mode_mean_tokens": SentenceMode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": SentenceMode.MEAN_SQRT,
    "pooling_mode_weightedmean_tokens": SentenceMode.WEIGHTED,
    "pooling_mode_lasttoken": SentenceMode.LAST,
}
"""Settings of the pooling before version 5 of the library."""


Checked = TypeVar("Checked", SentenceHeadConfig, DenseConfig, LayerNormConfig)


@dataclass(frozen=True, slots=True, eq=False)
class SentenceFolder:
    """The content of a folder besides its language model."""

    backbone: Path
    """The folder of the language model and its tokenizer."""
    head: SentenceHeadConfig
    weights: dict[str, Tensor] = field(repr=False)
    """The weights of the head."""
    prompts: dict[Side, str]
    """Text that is put before each text of a side."""
    max_length: int | None
    """Tokens that the folder cuts texts to; None if only its tokenizer states them."""
    lowers: bool
    """Whether texts are lowercased before they are tokenized."""


@dataclass(frozen=True, slots=True)
class _Module:
    kind: str
    folder: Path


def is_sentence_folder(folder: Path) -> bool:
    """Return whether a folder has the layout of sentence-transformers."""
    return (folder / MODULES_FILE).is_file()


def backbone_folder(folder: Path) -> Path:
    """Return the folder of the language model: the folder itself, unless it is one of sentence-transformers."""
    return _read_modules(folder)[0].folder if is_sentence_folder(folder) else folder


def read_sentence_folder(folder: Path) -> SentenceFolder:
    """Read modules, pooling, dense layers and prompts; refuse modules that are not text pooling or layers after it."""
    transformer, pooling, *others = _read_modules(folder)
    layers: list[LayerConfig] = []
    weights: dict[str, Tensor] = {}
    for module in others:
        layer = _read_layer(module)
        if layer is None:
            continue
        if layer.shapes():
            weights |= {f"layers.{len(layers)}.{name}": value for name, value in _read_weights(module.folder).items()}
        layers.append(layer)
    if layers and isinstance(layers[-1], NormalizeConfig):
        layers.pop()  # similarities normalise texts themselves
    prompts, includes_prompt = _read_prompts(folder), _read_object(pooling.folder / "config.json")
    if includes_prompt.get("include_prompt") is False and any(prompts.values()):
        raise ModelFolderError(
            f"{folder} pools texts without their prompts (include_prompt is false), which railsearch does not do; give "
            "another model."
        )
    own = _read_object(transformer.folder / TRANSFORMER_FILE, missing_ok=True)
    task = own.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise ModelFolderError(f"{folder} is a model for {task!r:.80}, not for embeddings; give an embedding model.")
    length = own.get("max_seq_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        raise ModelFolderError(f"{folder} states max_seq_length {length!r:.80}; give a positive number of tokens.")
    return SentenceFolder(
        backbone=transformer.folder,
        head=_checked(SentenceHeadConfig, folder, modes=_read_modes(pooling), layers=tuple(layers)),
        weights=weights,
        prompts=prompts,
        max_length=length if isinstance(length, int) and length <= LARGEST_SIZE else None,
        lowers=own.get("do_lower_case") is True,
    )


def _read_modules(folder: Path) -> list[_Module]:
    """Return the modules in order: a language model, a pooling, and others."""
    file = folder / MODULES_FILE
    entries = _read_json(file)
    if not isinstance(entries, list) or len(entries) < 2:
        raise ModelFolderError(f"{file} lists no language model with a pooling; give an embedding model.")
    if len(entries) > MOST_MODULES:
        raise ModelFolderError(f"{file} lists {len(entries)} modules; give a model with at most {MOST_MODULES}.")
    modules = []
    for entry in entries:
        kind, path = (entry.get(name) if isinstance(entry, dict) else None for name in ("type", "path"))
        if not isinstance(kind, str) or not isinstance(path, str):
            raise ModelFolderError(f"{file} lists {entry!r:.80}; each module needs a type and a path.")
        if INNER_FOLDER.fullmatch(path) is None:
            raise ModelFolderError(f"{file} names the path {path!r:.80}, which is not a folder in it; restore it.")
        if not kind.startswith(LIBRARY):
            raise ModelFolderError(
                f"{file} names the module {kind!r:.80}, which is code of its own and is not run; give a model whose "
                "modules are those of sentence-transformers."
            )
        modules.append(_Module(kind.rpartition(".")[2], folder / path))
    kinds = [module.kind for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise ModelFolderError(
            f"{file} lists {' and '.join(kinds[:2])} first but railsearch reads Transformer and Pooling, then layers; "
            "give such a model."
        )
    return modules


def _read_layer(module: _Module) -> LayerConfig | None:
    """Return a layer after the pooling; None for dropout, which changes no embedding."""
    if module.kind == "Dropout":
        return None
    if module.kind == "Normalize":
        return NormalizeConfig()
    if module.kind == "LayerNorm":
        config = _read_object(module.folder / "config.json")
        return _checked(LayerNormConfig, module.folder, dimension=config.get("dimension"))
    if module.kind != "Dense":
        raise ModelFolderError(
            f"{module.folder} is a {module.kind} module but railsearch reads Dense, LayerNorm, Normalize and Dropout "
            "after the pooling; give a model with these."
        )
    config = _read_object(module.folder / "config.json")
    names = [config.get(name) or "sentence_embedding" for name in ("module_input_name", "module_output_name")]
    if any(name != "sentence_embedding" for name in names):
        raise ModelFolderError(f"{module.folder} changes {', '.join(map(str, names))!s:.80}, not only the embedding.")
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    package, _, activation = str(name).rpartition(".")
    if not f"{package}.".startswith("torch.nn.") or activation not in set(Activation):
        raise ModelFolderError(
            f"{module.folder} has the activation {name!r:.80}; railsearch has: {', '.join(Activation)}."
        )
    given = {key: config[key] for key in ("in_features", "out_features", "bias", "use_residual") if key in config}
    return _checked(DenseConfig, module.folder, activation=activation, **given)


def _read_modes(pooling: _Module) -> tuple[object, ...]:
    config = _read_object(pooling.folder / "config.json")
    stated = config.get("pooling_mode")
    if isinstance(stated, str):
        return (stated,)
    if isinstance(stated, list):
        return tuple(stated)
    return tuple(mode for name, mode in OLD_MODES.items() if config.get(name) is True) or (SentenceMode.MEAN,)


def _read_prompts(folder: Path) -> dict[Side, str]:
    config = _read_object(folder / SETTINGS_FILE, missing_ok=True)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ModelFolderError(f"{folder / SETTINGS_FILE} states prompts that are not texts; restore it from a copy.")
    stated = config.get("default_prompt_name")
    default = prompts.get(stated, "") if isinstance(stated, str) else ""
    return {
        side: next((prompts[name] for name in names if name in prompts), default) for side, names in PROMPTS.items()
    }


def _read_weights(folder: Path) -> dict[str, Tensor]:
    file = folder / "model.safetensors"
    if not file.is_file():
        raise ModelFolderError(
            f"{folder} has no model.safetensors; railsearch reads no pickled weights: save the model again with a "
            "recent sentence-transformers."
        )
    try:
        return safetensors.torch.load_file(file)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy.") from error


def _read_object(file: Path, *, missing_ok: bool = False) -> dict[str, object]:
    if missing_ok and not file.exists():
        return {}
    content = _read_json(file)
    if not isinstance(content, dict):
        raise ModelFolderError(f"{file} holds no JSON object; restore it from a copy.")
    return content


def _read_json(file: Path) -> object:
    try:
        if file.stat().st_size > LARGEST_CONFIG:
            raise ModelFolderError(f"{file} has {file.stat().st_size} bytes; give at most {LARGEST_CONFIG}.")
        content: object = json.loads(file.read_text(encoding="utf-8"))
    except ModelFolderError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy.") from error
    return content


def _checked(kind: type[Checked], folder: Path, **values: Any) -> Checked:
    try:
        return kind(**values)
    except InvalidInputError as error:
        raise ModelFolderError(f"{folder} has wrong settings: {error}") from error
