"""A recording of everything that happens to a folder: names that change, content that changes, and syncs.

The folder is read before and after each system call that changes names or syncs. Their differences are the recording,
so that writes of native code are seen too.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

CALLS = ("fsync", "fdatasync", "replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir", "open", "close")
"""System calls around which the folder is read."""

Name: TypeAlias = tuple[int, str]
"""An entry of a directory: the directory's inode, and a name."""


@dataclass(frozen=True)
class Renamed:
    """One atomic change of directory entries; None is an entry that was removed."""

    entries: Mapping[Name, int | None]


@dataclass(frozen=True)
class Written:
    """New content of a file."""

    inode: int
    content: bytes


@dataclass(frozen=True)
class Synced:
    """A sync of a file's content, or of a directory's entries."""

    inode: int


@dataclass(frozen=True)
class Acknowledged:
    """A call that returned."""


Event: TypeAlias = Renamed | Written | Synced | Acknowledged


@dataclass
class Recording:
    """Events in a folder, in order."""

    root: Path
    events: list[Event] = field(default_factory=list)
    root_inode: int = 0
    num_before: int = 0
    """Events that stand for what was there, and safe, before the recording."""
    folders: set[int] = field(default_factory=set)
    _entries: dict[Name, int] = field(default_factory=dict)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)

    def acknowledge(self) -> None:
        """Note that a call has returned."""
        self.look()
        self.events.append(Acknowledged())

    def look(self) -> None:
        """Add what has changed since the last look."""
        entries: dict[Name, int] = {}
        contents: dict[int, bytes] = {}
        self._read(str(self.root), self.root_inode, entries, contents)
        changed: dict[Name, int | None] = {
            name: entries.get(name)
            for name in sorted(entries.keys() | self._entries.keys())
            if entries.get(name) != self._entries.get(name)
        }
        if changed:
            self.events.append(Renamed(changed))
        for inode, content in contents.items():
            if self._contents.get(inode, b"") != content:
                self.events.append(Written(inode, content))
        self._entries = entries
        self._contents |= contents

    def _read(self, path: str, inode: int, entries: dict[Name, int], contents: dict[int, bytes]) -> None:
        self.folders.add(inode)
        with os.scandir(path) as found:
            for entry in found:
                child = entry.inode()
                if child not in self._held:  # so that its number is not given to another file
                    self._held[child] = _open(entry.path, os.O_RDONLY)
                entries[inode, entry.name] = child
                if entry.is_dir(follow_symlinks=False):
                    self._read(entry.path, child, entries, contents)
                else:
                    contents[child] = os.pread(self._held[child], 2**24, 0)

    def close(self) -> None:
        """Release the files that were seen."""
        for descriptor in self._held.values():
            _close(descriptor)
        self._held.clear()


_open, _close = os.open, os.close


@contextlib.contextmanager
def recorded(root: Path) -> Iterator[Recording]:
    """Record what happens to a folder while the block runs; its present content counts as durable."""
    recording = Recording(root, root_inode=root.stat().st_ino)
    recording.look()
    recording.events.append(Synced(recording.root_inode))
    for inode in sorted(recording._held):
        recording.events.append(Synced(inode))
    recording.num_before = len(recording.events)

    def around(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            recording.look()
            inode = os.fstat(arguments[0]).st_ino if name in {"fsync", "fdatasync"} else None
            result = real(*arguments, **options)
            if inode is not None:
                recording.events.append(Synced(inode))
            recording.look()
            return result

        return call

    with contextlib.ExitStack() as stack:
        stack.callback(recording.close)
        for name in CALLS:
            stack.enter_context(mock.patch.object(os, name, around(name)))
        yield recording
