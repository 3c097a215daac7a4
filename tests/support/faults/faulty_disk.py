"""A disk whose every call can fail: system calls on files under one folder raise an error of the test's choice."""

import builtins
import contextlib
import errno
import fcntl
import io
import itertools
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch

BY_PATH = (
    "open", "stat", "lstat", "replace", "rename", "link", "mkdir", "unlink", "remove", "rmdir", "scandir", "listdir",
)  # fmt: skip
BY_DESCRIPTOR = ("fsync", "fdatasync", "ftruncate", "write", "pwrite", "read", "pread", "fstat", "fdopen")
READS_OF_FILES = ("read", "readinto", "readline", "readlines", "readall")
WRITES_OF_FILES = ("write", "writelines", "flush", "truncate")
CHANGES = {
    "fsync", "fdatasync", "replace", "rename", "link", "mkdir", "ftruncate", "write", "pwrite", "writelines", "flush",
    "truncate", "create",
}  # fmt: skip
"""Calls without which a change cannot be durable."""


@dataclass
class Fault:
    """An error at one call, or at all calls from one on."""

    root: Path
    number: int
    code: int
    is_lasting: bool = False
    hits: list[tuple[str, str]] = field(default_factory=list)
    """Name of the call and path of each call that failed."""
    watched: Path | None = None
    content_at_hit: bytes | None = None
    """The content of the watched file when the first call failed."""
    _count: Iterator[int] = field(default_factory=itertools.count)

    def at(self, name: str, path: str) -> None:
        """Raise the error if this call is to fail."""
        if path != str(self.root) and not path.startswith(f"{self.root}{os.sep}"):
            return
        number = next(self._count)
        if number == self.number or (self.is_lasting and number > self.number):
            if not self.hits and self.watched is not None:
                self.content_at_hit = read_plainly(self.watched)
            self.hits.append((name, path))
            raise OSError(self.code, os.strerror(self.code), path)


def read_plainly(path: Path) -> bytes:
    """Return a small file's content by calls that never fail."""
    descriptor = _open(path, os.O_RDONLY)
    try:
        return _pread(descriptor, 2**16, 0)
    finally:
        os.close(descriptor)


_open, _pread = os.open, os.pread


class FaultyFile:
    """A file object each of whose calls may fail."""

    def __init__(self, file: Any, path: str, fault: Fault) -> None:
        self._file, self._path, self._fault = file, path, fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if name not in READS_OF_FILES + WRITES_OF_FILES:
            return found

        def call(*arguments: Any) -> Any:
            if name in {"write", "writelines"} and self._is_next():
                with contextlib.suppress(TypeError):  # half of it arrives
                    found(arguments[0][: len(arguments[0]) // 2])
            self._fault.at(name, self._path)
            return found(*arguments)

        return call

    def _is_next(self) -> bool:
        return bool(self._fault.hits and self._fault.is_lasting)

    def __enter__(self) -> "FaultyFile":
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        self._fault.at("readline", self._path)
        return iter(self._file)


def path_of(target: Any, dir_fd: int | None = None) -> str:
    """Return the absolute path that a call is about; empty if it has none."""
    if isinstance(target, int):
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/self/fd/{target}")  # noqa: PTH115  (it must not call what is patched)
        return ""
    if hasattr(target, "fileno"):
        return path_of(target.fileno())
    name = os.fsdecode(target)
    return os.path.abspath(name) if dir_fd is None else os.path.join(path_of(dir_fd), name)  # noqa: PTH100, PTH118


@contextlib.contextmanager
def failing(fault: Fault) -> Iterator[None]:
    """Let calls fail while the block runs."""

    def patch(owner: Any, name: str) -> Any:
        real = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            target = arguments[0] if arguments else next(iter(options.values()))
            path = path_of(target, options.get("dir_fd", options.get("src_dir_fd")))
            is_new = (
                name == "open" and len(arguments) > 1 and isinstance(arguments[1], int) and arguments[1] & os.O_CREAT
            )
            fault.at("create" if is_new else name, path)
            return real(*arguments, **options)

        return mock.patch.object(owner, name, call)

    real_open = io.open

    def open_file(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        path = path_of(file)
        if not isinstance(file, int):
            fault.at("create" if "w" in mode or "x" in mode else "open", path)
        opened = real_open(file, mode, *arguments, **options)
        return FaultyFile(opened, path, fault) if path.startswith(str(fault.root)) else opened

    with contextlib.ExitStack() as stack:
        for name in (*BY_PATH, *BY_DESCRIPTOR):
            stack.enter_context(patch(os, name))
        for owner, name in ((fcntl, "flock"), (mmap, "mmap"), (safetensors.torch, "load_file")):
            stack.enter_context(patch(owner, name))
        stack.enter_context(mock.patch.object(io, "open", open_file))
        stack.enter_context(mock.patch.object(builtins, "open", open_file))
        yield


MOST_BYTES = 7
"""Bytes that one call moves at most on a disk that is short of breath."""


class ShortFile(io.FileIO):
    """A file that reads and writes a few bytes at a time, as POSIX allows."""

    def write(self, content: Any) -> int:
        return super().write(memoryview(content).cast("B")[:MOST_BYTES])

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer).cast("B")[:MOST_BYTES])

    def read(self, size: int = -1) -> bytes:
        return super().read(MOST_BYTES if size < 0 else min(size, MOST_BYTES))


@contextlib.contextmanager
def short_calls(root: Path) -> Iterator[None]:
    """Let each read and write of files under a folder move a few bytes only while the block runs."""
    real_open, real_pread, real_read, real_pwrite, real_write = io.open, os.pread, os.read, os.pwrite, os.write

    def is_ours(target: Any) -> bool:
        return path_of(target).startswith(str(root))

    def open_file(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
        if not is_ours(file):
            return real_open(file, mode, buffering, *arguments, **options)
        raw = ShortFile(file, mode.replace("b", "").replace("t", ""), options.get("closefd", True))
        if buffering == 0:
            return raw
        buffered = io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding=options.get("encoding"), newline=options.get("newline"))

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        return real_pread(descriptor, min(size, MOST_BYTES) if is_ours(descriptor) else size, offset)

    def read(descriptor: int, size: int) -> bytes:
        return real_read(descriptor, min(size, MOST_BYTES) if is_ours(descriptor) else size)

    def pwrite(descriptor: int, content: Any, offset: int) -> int:
        return real_pwrite(descriptor, content[:MOST_BYTES] if is_ours(descriptor) else content, offset)

    def write(descriptor: int, content: Any) -> int:
        return real_write(descriptor, content[:MOST_BYTES] if is_ours(descriptor) else content)

    with contextlib.ExitStack() as stack:
        for name, call in (("pread", pread), ("read", read), ("pwrite", pwrite), ("write", write)):
            stack.enter_context(mock.patch.object(os, name, call))
        stack.enter_context(mock.patch.object(io, "open", open_file))
        stack.enter_context(mock.patch.object(builtins, "open", open_file))
        yield


MODES = {
    "EIO": (errno.EIO, False),
    "ENOSPC": (errno.ENOSPC, False),
    "EINTR": (errno.EINTR, False),
    "a dead disk": (errno.EIO, True),
}
"""Kinds of fault: the error's code, and whether it lasts."""
