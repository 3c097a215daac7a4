"""What a disk may hold after the power fails, given a recording of what was done to it.

The model is the weakest that POSIX allows. The content of a file is safe once the file was synced after the write, an
entry of a directory once the directory was synced after the change. Everything else may or may not have reached the
disk, in any combination: a file may keep its old content, hold a part of the new one, or zeros instead.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.faults.recording import Acknowledged, Event, Name, Recording, Renamed, Synced, Written

SIMPLE = ("nothing", "everything", "names", "torn", "zeros", "content")
"""Kinds of loss: what reached the disk of all that was not synced."""


@dataclass(frozen=True)
class State:
    """A disk after a power failure."""

    num_acknowledged: int
    """Calls that had returned before it."""
    num_events: int
    loss: str
    files: tuple[tuple[str, bytes | None], ...]
    """Content by path from the root; None for a directory."""

    def write(self, folder: Path) -> None:
        """Make this disk's tree in an empty folder."""
        for path, content in self.files:
            if content is None:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(content)


def states(recording: Recording, *, num_random: int, seed: int, losses: Sequence[str] = SIMPLE) -> Iterator[State]:
    """Give every distinct disk of every moment of a recording: each simple kind of loss, and random ones."""
    choice = random.Random(seed)
    seen = set()
    for num_events in range(recording.num_before, len(recording.events) + 1):
        for loss in (*losses, *["random"] * num_random):
            state = crash(recording, num_events, loss, choice)
            if (state.num_acknowledged, state.files) not in seen:
                seen.add((state.num_acknowledged, state.files))
                yield state


def crash(recording: Recording, num_events: int, loss: str, choice: random.Random) -> State:
    """Give the disk if the power fails after so many events."""
    events = recording.events[:num_events]
    last_sync = {event.inode: place for place, event in enumerate(events) if isinstance(event, Synced)}
    entries: dict[Name, int] = {}
    contents: dict[int, bytes] = {}
    for place, event in enumerate(events):
        is_safe = _is_safe(event, place, last_sync)
        if isinstance(event, Renamed) and (is_safe or _keeps_names(loss, choice)):
            for name, inode in event.entries.items():
                if inode is None:
                    entries.pop(name, None)
                else:
                    entries[name] = inode
        elif isinstance(event, Written):
            old = contents.get(event.inode, b"")
            contents[event.inode] = event.content if is_safe else _kept_content(loss, choice, old, event.content)
    files: list[tuple[str, bytes | None]] = []
    _list(recording, recording.root_inode, "", entries, contents, files)
    num_acknowledged = sum(isinstance(event, Acknowledged) for event in events)
    return State(num_acknowledged, num_events, loss, tuple(files))


def _is_safe(event: Event, place: int, last_sync: dict[int, int]) -> bool:
    if isinstance(event, Renamed):
        return any(last_sync.get(folder, -1) > place for folder, _ in event.entries)
    return isinstance(event, Written) and last_sync.get(event.inode, -1) > place


def _keeps_names(loss: str, choice: random.Random) -> bool:
    return choice.random() < 0.5 if loss == "random" else loss in {"everything", "names", "torn", "zeros"}


def _kept_content(loss: str, choice: random.Random, old: bytes, new: bytes) -> bytes:
    if loss == "random":
        loss = choice.choice(["nothing", "everything", "torn", "zeros"])
    if loss in {"everything", "content"}:
        return new
    if loss == "torn":
        return new[: choice.randrange(len(new) + 1)]
    return bytes(len(new)) if loss == "zeros" else old


def _list(
    recording: Recording,
    folder: int,
    path: str,
    entries: dict[Name, int],
    contents: dict[int, bytes],
    files: list[tuple[str, bytes | None]],
) -> None:
    for (parent, name), inode in sorted(entries.items()):
        if parent != folder:
            continue
        if inode in recording.folders:
            files.append((f"{path}{name}", None))
            _list(recording, inode, f"{path}{name}/", entries, contents, files)
        else:
            files.append((f"{path}{name}", contents.get(inode, b"")))
