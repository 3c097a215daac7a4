"""The name of a model's content, so that the parts of one model are never mistaken for those of another."""

import hashlib
import json
import weakref

import torch
from torch import Tensor, nn

from railsearch.similarity.contract import ConfigValue

_known: "weakref.WeakKeyDictionary[nn.Module, tuple[object, str]]" = weakref.WeakKeyDictionary()


def compute_fingerprint(kind: str, config: dict[str, ConfigValue], tensors: dict[str, Tensor]) -> str:
    """Sha256 over kind, config, and every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256()
    digest.update(json.dumps({"kind": kind, "config": config}, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"\n{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def remembered_fingerprint(module: nn.Module, kind: str, config: dict[str, ConfigValue]) -> str | None:
    """The fingerprint of a module that is asked for it at every search; computed anew where its weights have changed.

    None where there is none to be had: for weights without a memory of their own.
    """
    tensors = module.state_dict()
    if any(tensor.is_meta for tensor in tensors.values()):
        return None
    state = (kind, repr(config), [(value.data_ptr(), _changes(value), value.dtype) for value in tensors.values()])
    known = _known.get(module)
    if known is None or known[0] != state:
        known = _known[module] = (state, compute_fingerprint(kind, config, tensors))
    return known[1]


def _changes(tensor: Tensor) -> int:
    """How often a tensor was changed in place; one of inference mode does not count, and cannot be trained either."""
    return 0 if tensor.is_inference() else tensor._version
