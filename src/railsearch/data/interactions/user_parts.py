"""Prepared data in slices of users, for work that does not read all histories into memory."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.prepared import EVENTS_FILE, ITEMS_FILE, check_prepared
from railsearch.data.table_files import read_table
from railsearch.foundation.errors import DataFolderError
from railsearch.foundation.files import FileEntry, settled_folder
from railsearch.foundation.inputs import as_path, check_count

if TYPE_CHECKING:
    from polars import DataFrame


@dataclass(frozen=True, slots=True)
class UserParts:
    """A folder of prepared data, cut into parts of the same number of users."""

    folder: Path
    source: str
    has_times: bool
    starts: tuple[int, ...]  # (parts + 1,) row of each part's first event; the last value is the number of events
    events: FileEntry
    items: FileEntry

    @classmethod
    def cut(cls, path: str | Path, *, users_per_part: int) -> "UserParts":
        """Check every byte of a folder of prepared data, and cut it; the last part may have fewer users.

        Memory holds one number for each user, but not the events.
        """
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        check_count(users_per_part, name="users_per_part")
        folder = settled_folder(as_path(path))
        about = check_prepared(folder)
        events = pl.scan_parquet(folder / EVENTS_FILE, glob=False).select("user").with_row_index("row")
        counted = events.group_by("user").agg(first=pl.col("row").min(), count=pl.len())
        users = counted.select("first", "count").sort("first").collect(engine="streaming")
        ends = users["first"] + users["count"]
        if len(users) != about.num_users or not bool((ends[:-1] == users["first"][1:]).all()):
            raise DataFolderError(
                f"{folder / EVENTS_FILE} is not sorted by its {about.num_users} users; prepare the data again."
            )
        starts = (*users["first"].gather_every(users_per_part).to_list(), about.num_events)
        files = (about.files[name] for name in (EVENTS_FILE, ITEMS_FILE))
        return cls(folder, about.source, about.has_times, starts, *files)

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.starts) - 1

    @property
    def events_file(self) -> Path:
        """The file of the events."""
        return self.folder / EVENTS_FILE

    def read_items(self) -> "DataFrame":
        """Return the table of all items."""
        return read_table(self.folder / ITEMS_FILE)

    def read(self, part: int, items: "DataFrame") -> Interactions:
        """Return the interactions of the users of one part; their items are all items of the data."""
        import polars as pl  # noqa: PLC0415

        first, last = self.starts[part], self.starts[part + 1]
        events = pl.scan_parquet(self.events_file, glob=False).slice(first, last - first).collect()
        found = Interactions.from_frame(events, catalogue=items, source=self.source)
        return dataclasses.replace(found, has_times=self.has_times)
