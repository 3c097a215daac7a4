"""Every step that railsearch takes on a disk, so that something can go wrong at any one of them."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch

WRITES = ("fsync", "replace", "rename", "mkdir", "ftruncate", "pwrite", "write_bytes", "write_text", "save_file")
"""Steps that need room on the disk."""
STEPS = (*WRITES, "open", "close", "flock", "unlink", "rmdir")

OnStep = Callable[[str, Callable[[], object]], None]
"""Is called before each step with its name, and with what leaves it half done."""


@contextlib.contextmanager
def watched(on_step: OnStep) -> Iterator[None]:
    """Call `on_step` before every step on a disk; if it raises, the step is not taken."""

    def patch(owner: object, name: str, tear: Callable[..., object] = lambda *_: None) -> Any:
        real = getattr(owner, name)

        def step(*arguments: Any, **options: Any) -> Any:
            on_step(name, lambda: tear(*arguments))
            return real(*arguments, **options)

        return mock.patch.object(owner, name, step)

    def tear_bytes(path: Path, content: Any) -> None:
        with open(path, "wb") as file:  # noqa: PTH123  (Path.write_bytes is what is patched)
            file.write(bytes(content)[: len(content) // 2])

    def tear_tensors(tensors: Any, path: Path) -> None:
        tear_bytes(path, safetensors.torch.save(tensors))

    patches = [patch(os, name) for name in STEPS if hasattr(os, name)]
    patches += [
        patch(fcntl, "flock"),
        patch(Path, "write_bytes", tear_bytes),
        patch(Path, "write_text", lambda path, text: tear_bytes(path, text.encode())),
        patch(safetensors.torch, "save_file", tear_tensors),
    ]
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield
