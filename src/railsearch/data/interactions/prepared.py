"""A folder of prepared data: interactions and items as Parquet, and a sealed about.json that describes them."""

import dataclasses
import datetime as dt
import io
from dataclasses import dataclass
from pathlib import Path

from railsearch.data.interactions.interactions import Interactions
from railsearch.data.table_files import read_table
from railsearch.folders import FolderFormat, register_opener, writing
from railsearch.foundation.errors import DataFolderError, InvalidInputError
from railsearch.foundation.files import FileEntry, settled_folder
from railsearch.foundation.inputs import as_path

ABOUT_FILE = "about.json"
EVENTS_FILE = "interactions.parquet"
ITEMS_FILE = "items.parquet"
FORMAT = FolderFormat(
    "railsearch.interactions",
    2,
    noun="folder of prepared data",
    writer="`railsearch data prepare`",
    files=frozenset({EVENTS_FILE, ITEMS_FILE}),
    config_file=ABOUT_FILE,
    error=DataFolderError,
    remedy="prepare the data again",
)


@dataclass(frozen=True, slots=True)
class About:
    """Description of a folder of prepared data, with the source of the data."""

    name: str
    source: str
    terms: str | None
    """Address of the terms of use."""
    num_users: int
    num_items: int
    """Number of candidates, including items without events."""
    num_events: int
    median_history: int
    longest_history: int
    first_time: str | None
    last_time: str | None
    has_times: bool
    has_ratings: bool
    item_columns: tuple[str, ...]
    min_count: int
    """Users and items with fewer events were dropped; 0 if none were."""
    num_dropped: int
    """Number of events that were dropped with them."""
    bad_rows: tuple[str, ...]
    """Reason for each row that was skipped."""
    files: dict[str, FileEntry]


def write_prepared(
    interactions: Interactions,
    path: str | Path,
    *,
    name: str,
    terms: str | None = None,
    min_count: int = 0,
    num_dropped: int = 0,
    overwrite: bool = False,
) -> About:
    """Write interactions as a folder that `read_prepared` reads; the folder is complete or missing.

    Args:
        interactions: from files, or from a table in memory.
        path: the folder.
        name: name of the data.
        terms: address of its terms of use.
        min_count: users and items with fewer events were dropped before.
        num_dropped: number of events that were dropped with them.
        overwrite: replace an existing folder of prepared data.
    """
    with writing(FORMAT, as_path(path), overwrite=overwrite) as folder:
        return write_files(interactions, folder, name=name, terms=terms, min_count=min_count, num_dropped=num_dropped)


def read_prepared(path: str | Path) -> Interactions:
    """Read interactions from a folder that `prepare` wrote; refuse one that is damaged or foreign.

    >>> import polars as pl, tempfile
    >>> events = Interactions.from_frame(pl.DataFrame({"user": ["a", "a"], "item": [7, 3], "timestamp": [20, 10]}))
    >>> folder = tempfile.mkdtemp() + "/events"
    >>> write_prepared(events, folder, name="events").num_events
    2
    >>> read_prepared(folder).items.tolist()
    [0, 1]
    """
    folder = settled_folder(as_path(path))
    about = check_prepared(folder)
    events, items = (read_table(folder / name) for name in (EVENTS_FILE, ITEMS_FILE))
    try:
        found = Interactions.from_frame(
            events, rating="rating" if about.has_ratings else None, catalogue=items, source=about.source
        )
    except InvalidInputError as error:
        raise DataFolderError(f"{folder} does not hold prepared data ({error}); prepare the data again.") from error
    stated, counted = (
        (about.num_users, about.num_items, about.num_events),
        (found.num_users, found.num_items, len(found)),
    )
    if stated != counted:
        raise DataFolderError(
            f"{folder / ABOUT_FILE} states {stated} users, items and events but the files hold {counted}; prepare the "
            "data again."
        )
    return dataclasses.replace(found, bad_rows=about.bad_rows, has_times=about.has_times)


def check_prepared(path: str | Path) -> About:
    """Check every byte of a folder of prepared data, and return its description."""
    folder = settled_folder(as_path(path))
    FORMAT.check_files(folder, FORMAT.read(folder))
    return read_about(folder)


def read_about(path: str | Path) -> About:
    """Read the description of a folder of prepared data, without reading the data."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  (importing railsearch stays cheap)

    folder = settled_folder(as_path(path))
    config = FORMAT.read(folder)
    stated = {name: value for name, value in config.items() if name not in ("format", "format_version")}
    try:
        return TypeAdapter(About).validate_python(stated)
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, detail["loc"])) for detail in error.errors())
        raise DataFolderError(f"{folder / ABOUT_FILE} is damaged in: {wrong}; prepare the data again.") from error


def write_files(
    interactions: Interactions,
    folder: Path,
    *,
    name: str,
    terms: str | None,
    min_count: int,
    num_dropped: int,
) -> About:
    """Write the files of a folder of prepared data."""
    import polars as pl  # noqa: PLC0415

    events = pl.DataFrame(
        {
            "user": interactions.user_ids.gather(interactions.users.numpy()),
            "item": interactions.item_ids.gather(interactions.items.numpy()),
            "timestamp": interactions.timestamps.numpy(),
        }
    )
    if interactions.ratings is not None:
        events = events.with_columns(rating=pl.Series(interactions.ratings.numpy()))
    items = interactions.item_ids.alias("item").to_frame()
    if interactions.item_columns is not None:
        items = items.hstack(interactions.item_columns)
    for file, table in ((EVENTS_FILE, events), (ITEMS_FILE, items)):
        content = io.BytesIO()  # polars reports a full disk in its own way
        table.write_parquet(content)
        (folder / file).write_bytes(content.getbuffer())
    lengths = interactions.offsets.diff()  # (U,)
    times = interactions.timestamps.aminmax() if interactions.has_times else None
    about = About(
        name=name,
        source=interactions.source,
        terms=terms,
        num_users=interactions.num_users,
        num_items=interactions.num_items,
        num_events=len(interactions),
        median_history=int(lengths.median()),
        longest_history=int(lengths.max()),
        first_time=None if times is None else _date(int(times.min)),
        last_time=None if times is None else _date(int(times.max)),
        has_times=interactions.has_times,
        has_ratings=interactions.ratings is not None,
        item_columns=tuple(items.columns[1:]),
        min_count=min_count,
        num_dropped=num_dropped,
        bad_rows=interactions.bad_rows,
        files={},
    )
    stated = {field: value for field, value in dataclasses.asdict(about).items() if field != "files"}
    FORMAT.write(folder, stated)
    return read_about(folder)


def _date(second: int) -> str | None:
    """Return a second as a date, or None if its year is beyond those of a date."""
    try:
        return dt.datetime.fromtimestamp(second, dt.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


register_opener(FORMAT.name, read_prepared, config_file=ABOUT_FILE)
