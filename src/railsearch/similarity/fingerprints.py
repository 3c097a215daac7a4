"""Fingerprints: the name of a model's content, so that the parts of one model are never taken for those of another."""

import hashlib
import json
import weakref
from collections.abc import Callable, Iterator

import torch
import xxhash
from torch import Tensor, nn

from railsearch.similarity.contract import ConfigValue

_known: "weakref.WeakKeyDictionary[nn.Module, tuple[tuple[str, str], str]]" = weakref.WeakKeyDictionary()
_unnamed: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()


def compute_fingerprint(kind: str, config: dict[str, ConfigValue], tensors: dict[str, Tensor]) -> str:
    """Return the sha256 over kind, config, and every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256()
    digest.update(_heading(kind, config))
    for content in _contents(tensors):
        digest.update(content)
    return digest.hexdigest()


def remembered_fingerprint(
    module: nn.Module, kind: str, get_config: Callable[[], dict[str, ConfigValue]]
) -> str | None:
    """Return the fingerprint of a module, which marks all parts that it computes.

    The sha256 is computed again only if a checksum of all weights has changed. The checksum is of their content:
    `weight.data.mul_(2)` leaves no other trace. Returns None for weights without memory, and after `leave_unnamed`.
    """
    if module in _unnamed:
        return None
    tensors = module.state_dict()
    if any(tensor.is_meta for tensor in tensors.values()):
        return None
    config = get_config()
    digest = xxhash.xxh3_128()
    for content in _contents(tensors):
        digest.update(content)
    state = (_heading(kind, config).decode(), digest.hexdigest())
    known = _known.get(module)
    if known is None or known[0] != state:
        known = _known[module] = (state, compute_fingerprint(kind, config, tensors))
    return known[1]


def leave_unnamed(module: object) -> None:
    """Leave the parts of a module without a fingerprint.

    Use it for a copy that only its owner can reach and that never changes: its parts need no proof, and a search
    needs no checksum.
    """
    if isinstance(module, nn.Module):
        _unnamed.add(module)


def is_unnamed(module: nn.Module) -> bool:
    """Return whether `leave_unnamed` was called for this module: it never changes."""
    return module in _unnamed


def _heading(kind: str, config: dict[str, ConfigValue]) -> bytes:
    return json.dumps({"kind": kind, "config": config}, sort_keys=True).encode()


def _contents(tensors: dict[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield every tensor's name, type and shape, then its bytes."""
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        yield f"\n{name} {values.dtype} {tuple(values.shape)}\n".encode()
        yield values.flatten().view(torch.uint8).numpy().data
