"""A similarity as a model folder, config.json and model.safetensors, and the fingerprint that names it."""

import json
from pathlib import Path
from typing import TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from railsearch.foundation.errors import FingerprintError, InvalidInputError, ModelFolderError
from railsearch.foundation.files import new_folder, settled_folder
from railsearch.similarity.contract import ConfigValue, Similarity
from railsearch.similarity.dot_product import DotProduct
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.similarity.mixture import MixtureOfLogits

FORMAT = "railsearch.similarity"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"

KnownSimilarity: TypeAlias = MixtureOfLogits | DotProduct
_KINDS: dict[str, type[KnownSimilarity]] = {known.kind: known for known in (MixtureOfLogits, DotProduct)}


def fingerprint(similarity: Similarity) -> str:
    """Name a similarity by its content: sha256 over kind, config, and every tensor's name, type, shape and bytes.

    >>> fingerprint(DotProduct(dim=2)) == fingerprint(DotProduct(dim=2))
    True
    >>> fingerprint(DotProduct(dim=2)) == fingerprint(DotProduct(dim=2, cosine=True))
    False
    """
    return compute_fingerprint(_kind_of(similarity), similarity.config, similarity.state_dict())


def save_similarity(similarity: Similarity, path: str | Path, *, overwrite: bool = False) -> str:
    """Write a model folder and give its fingerprint; a kill at any moment leaves the old one or the new one."""
    target = settled_folder(Path(path))
    if target.exists() and not overwrite:
        raise InvalidInputError(f"{target} exists already; choose another path or pass overwrite=True.")
    if target.exists() and not _is_ours(target):
        raise InvalidInputError(
            f"{target} holds other files than a railsearch similarity, and will not be replaced; choose another path."
        )
    name = fingerprint(similarity)
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": _kind_of(similarity),
        "config": similarity.config,
        "fingerprint": name,
    }
    tensors = {key: value.detach().cpu().contiguous() for key, value in similarity.state_dict().items()}
    with new_folder(Path(path), replaces=overwrite) as folder:
        (folder / WEIGHTS_FILE).write_bytes(safetensors.torch.save(tensors))
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    return name


def load_similarity(path: str | Path, *, expected_fingerprint: str | None = None) -> KnownSimilarity:
    """Read a model folder, on the CPU and ready to score; refuse what is damaged or foreign.

    Args:
        path: a folder that `save_similarity` wrote.
        expected_fingerprint: refuse any model but this one.
    """
    folder = settled_folder(Path(path))
    kind, config, name = _read_config(folder)
    if expected_fingerprint is not None and name != expected_fingerprint:
        raise FingerprintError(
            f"{folder} holds model {name} but {expected_fingerprint} was expected; "
            "give the path of that model, or expect this one."
        )
    tensors = _read_weights(folder / WEIGHTS_FILE)
    try:
        with torch.device("meta"):  # no memory is taken before the weights are known to fit
            similarity = _KINDS[kind](**config)  # type: ignore[arg-type]
    except (TypeError, InvalidInputError, RuntimeError, OverflowError) as error:
        raise ModelFolderError(
            f"{folder / CONFIG_FILE} does not describe a {kind}: {error}; restore the file."
        ) from error
    _fill(similarity, tensors, folder / WEIGHTS_FILE)
    found = fingerprint(similarity)
    if found != name:
        raise FingerprintError(
            f"{folder} says that its fingerprint is {name} but its content has {found}: "
            "weights or config were changed after saving; restore the folder from a copy."
        )
    return similarity.eval()


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a model that we wrote, and nothing else."""
    if not folder.is_dir() or {file.name for file in folder.iterdir()} - {CONFIG_FILE, WEIGHTS_FILE}:
        return False
    try:
        stated = json.loads((folder / CONFIG_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(stated, dict) and stated.get("format") == FORMAT


def _kind_of(similarity: Similarity) -> str:
    for kind, known in _KINDS.items():
        if type(similarity) is known:
            return kind
    raise InvalidInputError(
        f"{type(similarity).__name__} cannot be named or saved; railsearch knows: {', '.join(_KINDS)}."
    )


def _read_config(folder: Path) -> tuple[str, dict[str, ConfigValue], str]:
    """Kind, keyword arguments and fingerprint that config.json states."""
    file = folder / CONFIG_FILE
    try:
        stated = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise ModelFolderError(f"{file} does not exist; give a folder that save_similarity wrote.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy.") from error
    if not isinstance(stated, dict) or stated.get("format") != FORMAT:
        raise ModelFolderError(f"{file} is not the config of a railsearch similarity; give another folder.")
    if stated.get("format_version") != FORMAT_VERSION:
        raise ModelFolderError(
            f"{file} has format version {stated.get('format_version')} but this railsearch reads "
            f"{FORMAT_VERSION}; install the railsearch that wrote it."
        )
    kind, config, name = stated.get("kind"), stated.get("config"), stated.get("fingerprint")
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(config, dict) or not isinstance(name, str):
        raise ModelFolderError(
            f"{file} has kind {kind!r} (known: {', '.join(_KINDS)}), or lacks config or fingerprint; "
            "restore it from a copy."
        )
    return kind, config, name


def _read_weights(file: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(file)
    except FileNotFoundError as error:
        raise ModelFolderError(f"{file} does not exist; restore it from a copy of the folder.") from error
    except (OSError, SafetensorError) as error:
        raise ModelFolderError(
            f"{file} is truncated, damaged or no safetensors file ({error}); restore it from a copy."
        ) from error


def _fill(similarity: KnownSimilarity, tensors: dict[str, Tensor], file: Path) -> None:
    """Put the tensors into the module, keeping their precision; names and shapes must be the same."""
    wanted = {name: tuple(tensor.shape) for name, tensor in similarity.state_dict().items()}
    present = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wanted != present:
        differing = sorted(set(wanted.items()) ^ set(present.items()))[0][0]
        raise ModelFolderError(
            f"{file} belongs to another model: {differing} is {present.get(differing, 'absent')} there but the "
            f"config needs {wanted.get(differing, 'none')}; restore the folder from a copy."
        )
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ModelFolderError(f"{file} holds {name} as {tensor.dtype}; restore the folder from a copy.")
    similarity.load_state_dict(tensors, assign=True)
