"""Weights as safetensors: read from bytes that were checked, and put into a module whose shapes they must have."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from railsearch.foundation.errors import ModelFolderError

WEIGHTS_FILE = "model.safetensors"


def pack_weights(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the bytes of a safetensors file."""
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def unpack_weights(content: bytes, file: Path) -> dict[str, Tensor]:
    """Return the tensors in the bytes of a safetensors file; `file` is its name in messages."""
    try:
        tensors = safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelFolderError(
            f"{file} is truncated, damaged or not a safetensors file ({error}); restore it from a copy."
        ) from error
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ModelFolderError(f"{file} holds {name} as {tensor.dtype}; restore the folder from a copy.")
    return tensors


def check_shapes(wanted: Mapping[str, Tensor], present: Mapping[str, Tensor], file: Path) -> None:
    """Check that weights have the names and shapes of a module."""
    needed = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    found = {name: tuple(tensor.shape) for name, tensor in present.items()}
    if needed != found:
        differing = sorted(set(needed.items()) ^ set(found.items()))[0][0]
        raise ModelFolderError(
            f"{file} belongs to another model: {differing} is {found.get(differing, 'missing')} there but the config "
            f"needs {needed.get(differing, 'none')}; restore the folder from a copy."
        )


def fill(module: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Put tensors into a module in place of its own, with their precision; names and shapes must be the same."""
    check_shapes(module.state_dict(), tensors, file)
    module.load_state_dict(tensors, assign=True)
