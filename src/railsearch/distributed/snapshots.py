"""Snapshots of a split index: one version of every shard, so that readers never see a mixture."""

import contextlib
import dataclasses
import datetime as dt
import json
import re
from dataclasses import dataclass
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.files import new_file
from railsearch.foundation.safe_files import files_inside, read_inside, remove_inside
from railsearch.index.storage.manifest import LARGEST_COUNT, SealBrokenError, seal, unseal
from railsearch.index.storage.writer import storage_errors

SNAPSHOTS = "snapshots"
SNAPSHOT_NAME = re.compile(r"[0-9]{8,18}\.json")
KEPT_SNAPSHOTS = 3
"""Snapshots whose files stay. The shards keep the versions of the newest one; older ones as long as they are open."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of every shard."""

    split: str
    """The random id of the split."""
    number: int
    """1 after the split, and one more after each change."""
    versions: tuple[int, ...]
    num_items: tuple[int, ...]
    next_id: int
    """The integer id of the next item that is added without one, or with a string."""
    created_at: str = ""

    @property
    def count(self) -> int:
        """The number of items of all shards."""
        return sum(self.num_items)

    def write(self, folder: Path) -> None:
        """Make this snapshot current; it is durable when this returns. Then remove old ones."""
        stamped = dataclasses.replace(self, created_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
        with storage_errors(folder):
            (folder / SNAPSHOTS).mkdir(exist_ok=True)
            with new_file(folder / SNAPSHOTS / _file(self.number)) as written:
                written.write_bytes(seal(json.dumps(dataclasses.asdict(stamped)) + "\n"))
        with contextlib.suppress(OSError, IndexFolderError):
            for number in find_snapshots(folder)[:-KEPT_SNAPSHOTS]:
                remove_inside(folder, f"{SNAPSHOTS}/{_file(number)}")

    @classmethod
    def read(cls, folder: Path, number: int, *, split: str, num_shards: int) -> "Snapshot":
        """Read a snapshot; refuse one that is damaged, or of another split."""
        name = f"{SNAPSHOTS}/{_file(number)}"
        try:
            stated = json.loads(unseal(read_inside(folder, name)))
            stated["versions"], stated["num_items"] = tuple(stated["versions"]), tuple(stated["num_items"])
            snapshot = cls(**stated)
            counts = (snapshot.number, snapshot.next_id, *snapshot.versions, *snapshot.num_items)
            if not all(type(count) is int and 0 <= count <= LARGEST_COUNT for count in counts):
                raise TypeError(counts)
        except FileNotFoundError as error:
            kept = ", ".join(map(str, find_snapshots(folder))) or "none"
            raise IndexFolderError(f"{folder / name} does not exist; snapshots in this folder: {kept}.") from error
        except OSError as error:
            raise IndexFolderError(f"{folder / name} cannot be read ({error.strerror}); check permissions.") from error
        except (SealBrokenError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise IndexFolderError(
                f"{folder / name} is damaged: its checksum does not match; restore it from a copy."
            ) from error
        if snapshot.split != split or snapshot.number != number:
            raise IndexFolderError(
                f"{folder / name} is snapshot {snapshot.number} of split {snapshot.split!r:.80} but this is split "
                f"{split}; restore the folder from a copy."
            )
        if {len(snapshot.versions), len(snapshot.num_items)} != {num_shards} or 0 in snapshot.versions:
            raise IndexFolderError(
                f"{folder / name} names {len(snapshot.versions)} versions but there are {num_shards} shards; restore "
                "the folder from a copy."
            )
        return snapshot

    @classmethod
    def current(cls, folder: Path, *, split: str, num_shards: int) -> "Snapshot":
        """Read the newest snapshot."""
        for _ in range(100):
            numbers = find_snapshots(folder)
            if not numbers:
                raise IndexFolderError(f"{folder / SNAPSHOTS} holds no snapshot; restore the folder from a copy.")
            try:
                return cls.read(folder, numbers[-1], split=split, num_shards=num_shards)
            except IndexFolderError as error:
                # A writer may have moved on and removed it between the two reads.
                if not isinstance(error.__cause__, FileNotFoundError) or find_snapshots(folder) == numbers:
                    raise
        raise IndexFolderError(f"{folder} changes faster than it can be opened; try again.")


def find_snapshots(folder: Path) -> list[int]:
    """List the numbers of the snapshots in a folder, oldest first."""
    try:
        names = files_inside(folder, SNAPSHOTS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise IndexFolderError(
            f"{folder / SNAPSHOTS} cannot be read ({error.strerror}); restore the folder from a copy."
        ) from error
    return sorted(int(name.partition(".")[0]) for name in names if SNAPSHOT_NAME.fullmatch(name))


def _file(number: int) -> str:
    return f"{number:08d}.json"
