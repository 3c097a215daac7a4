"""A similarity as a folder: config.json and model.safetensors; any registered similarity can be saved."""

from pathlib import Path

import torch
from torch import nn

from railsearch.folders.opening import register_opener
from railsearch.folders.replacing import writing
from railsearch.folders.sealed import FolderFormat
from railsearch.folders.weights import WEIGHTS_FILE, fill, pack_weights, unpack_weights
from railsearch.foundation.errors import FingerprintError, InvalidInputError, ModelFolderError
from railsearch.foundation.files import settled_folder
from railsearch.foundation.inputs import as_path
from railsearch.similarity.contract import Similarity
from railsearch.similarity.registry import build_similarity, fingerprint, is_registered, kind_of, registered_kinds

FORMAT = FolderFormat(
    "railsearch.similarity", 2, noun="similarity", writer="save_similarity", files=frozenset({WEIGHTS_FILE})
)


def save_similarity(similarity: Similarity, path: str | Path, *, overwrite: bool = False) -> str:
    """Write a model folder and return its fingerprint; if the process is killed, the old or the new folder remains.

    Args:
        similarity: a similarity of a registered class, such as MixtureOfLogits or DotProduct.
        path: the folder.
        overwrite: replace a folder that `save_similarity` wrote and that holds nothing else.
    """
    name = fingerprint(similarity)
    config = {"kind": kind_of(similarity), "config": similarity.config, "fingerprint": name}
    with writing(FORMAT, as_path(path), overwrite=overwrite) as folder:
        (folder / WEIGHTS_FILE).write_bytes(pack_weights(similarity.state_dict()))
        FORMAT.write(folder, config)
    return name


def load_similarity(path: str | Path, *, expected_fingerprint: str | None = None) -> Similarity:
    """Read a model folder, on the CPU and ready to score; refuse one that is damaged or foreign.

    Args:
        path: a folder that `save_similarity` wrote.
        expected_fingerprint: refuse any other model than this one.
    """
    folder = settled_folder(as_path(path))
    config = FORMAT.read(folder)
    file = folder / FORMAT.config_file
    kind, settings, name = config.get("kind"), config.get("config"), config.get("fingerprint")
    if not is_registered(kind):
        raise ModelFolderError(
            f"{file} has kind {kind!r} but only {', '.join(registered_kinds())} are registered; import the module that "
            "registers it."
        )
    if not isinstance(settings, dict) or not isinstance(name, str):
        raise ModelFolderError(f"{file} lacks config or fingerprint; restore it from a copy.")
    if expected_fingerprint is not None and name != expected_fingerprint:
        raise FingerprintError(
            f"{folder} holds model {name} but {expected_fingerprint} was expected; "
            "give the path of that model, or expect this one."
        )
    tensors = unpack_weights(FORMAT.read_file(folder, config, WEIGHTS_FILE), folder / WEIGHTS_FILE)
    try:
        with torch.device("meta"):  # no memory is taken before the weights are known to fit
            similarity = build_similarity(str(kind), settings)
    except (TypeError, InvalidInputError, RuntimeError, OverflowError) as error:
        cause = str(error).rstrip(".")
        raise ModelFolderError(f"{file} does not describe a {kind} ({cause}); restore the file.") from error
    assert isinstance(similarity, nn.Module)
    fill(similarity, tensors, folder / WEIGHTS_FILE)
    found = fingerprint(similarity)
    if found != name:
        raise FingerprintError(
            f"{folder} states fingerprint {name} but its content has {found}: "
            "weights or config were changed after saving; restore the folder from a copy."
        )
    return similarity.train(False)


register_opener(FORMAT.name, load_similarity)
