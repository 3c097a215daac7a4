"""Hooks at every step that railsearch takes on a disk, so that a test can fail or kill it there."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

WRITES = ("fsync", "replace", "rename", "mkdir", "ftruncate", "pwrite", "write")
"""Steps that need room on the disk."""
STEPS = (*WRITES, "open", "close", "flock", "unlink", "rmdir")

OnStep = Callable[[str, Callable[[], object]], None]
"""Called before each step with its name and a function that leaves the step half done."""


class WatchedFile:
    """A file object that reports every write as a step."""

    def __init__(self, file: Any, on_step: OnStep) -> None:
        self._file = file
        self._on_step = on_step

    def __enter__(self) -> "WatchedFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, content: Any) -> int:
        self._on_step("write", lambda: self._write_half(content))
        return self._file.write(content)

    def _write_half(self, content: Any) -> None:
        self._file.write(content[: len(content) // 2])
        self._file.flush()


@contextlib.contextmanager
def watched(on_step: OnStep) -> Iterator[None]:
    """Call `on_step` before every step on a disk; if it raises, the step is not taken."""

    def patch(owner: object, name: str) -> Any:
        real = getattr(owner, name)

        def step(*arguments: Any, **options: Any) -> Any:
            on_step(name, lambda: None)
            return real(*arguments, **options)

        return mock.patch.object(owner, name, step)

    real_open = Path.open

    def open_watched(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = real_open(path, mode, *arguments, **options)
        return WatchedFile(file, on_step) if "w" in mode else file

    patches = [patch(os, name) for name in STEPS if name != "write" and hasattr(os, name)]
    patches += [patch(fcntl, "flock"), mock.patch.object(Path, "open", open_watched)]
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield
