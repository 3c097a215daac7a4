"""A folder of prepared data: interactions and items as Parquet, and what they are and where they come from."""

import dataclasses
import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path

from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.tables import read_table
from railsearch.folders import register_opener
from railsearch.foundation.errors import DataFolderError, InvalidInputError
from railsearch.foundation.files import FileEntry, describe, new_folder, settled_folder

FORMAT = "railsearch.interactions"
FORMAT_VERSION = 1
ABOUT_FILE = "about.json"
EVENTS_FILE = "interactions.parquet"
ITEMS_FILE = "items.parquet"


@dataclass(frozen=True, slots=True)
class About:
    """What a folder of prepared data holds, and where that comes from."""

    name: str
    source: str
    terms: str | None
    """Where the terms of use are."""
    num_users: int
    num_items: int
    """All candidates, also those that nobody met."""
    num_events: int
    median_history: int
    longest_history: int
    first_time: str | None
    last_time: str | None
    has_times: bool
    has_ratings: bool
    item_columns: tuple[str, ...]
    min_count: int
    """Users and items with fewer events were left out; 0 where none were."""
    num_left_out: int
    """Events that went with them."""
    bad_rows: tuple[str, ...]
    """What was wrong with rows that were left out."""
    files: dict[str, FileEntry]


def write_prepared(
    interactions: Interactions,
    path: str | Path,
    *,
    name: str,
    terms: str | None = None,
    min_count: int = 0,
    num_left_out: int = 0,
    overwrite: bool = False,
) -> About:
    """Write interactions as a folder that `read_prepared` reads, whole or not at all.

    Args:
        interactions: from files, or from a table in memory.
        path: the folder.
        name: what to call the data.
        terms: where its terms of use are.
        min_count: users and items with fewer events were left out before.
        num_left_out: the events that went with them.
        overwrite: replace a folder of prepared data that is there already.
    """
    check_target(path, overwrite=overwrite)
    try:
        with new_folder(Path(path), replaces=overwrite) as folder:
            return write_files(
                interactions, folder, name=name, terms=terms, min_count=min_count, num_left_out=num_left_out
            )
    except OSError as error:
        raise DataFolderError(f"{path} cannot be written ({error}); nothing was changed.") from error


def read_prepared(path: str | Path) -> Interactions:
    """Read interactions from a folder that `prepare` wrote; refuse what is damaged or foreign.

    >>> import polars as pl, tempfile
    >>> events = Interactions.from_frame(pl.DataFrame({"user": ["a", "a"], "item": [7, 3], "timestamp": [20, 10]}))
    >>> folder = tempfile.mkdtemp() + "/events"
    >>> write_prepared(events, folder, name="events").num_events
    2
    >>> read_prepared(folder).items.tolist()
    [0, 1]
    """
    folder = settled_folder(Path(path))
    about = check_prepared(folder)
    events, items = (read_table(folder / name) for name in (EVENTS_FILE, ITEMS_FILE))
    try:
        found = Interactions.from_frame(
            events, rating="rating" if about.has_ratings else None, catalogue=items, source=about.source
        )
    except InvalidInputError as error:
        raise DataFolderError(f"{folder} does not hold prepared data ({error}); prepare the data anew.") from error
    stated, counted = (
        (about.num_users, about.num_items, about.num_events),
        (found.num_users, found.num_items, len(found)),
    )
    if stated != counted:
        raise DataFolderError(
            f"{folder / ABOUT_FILE} states {stated} users, items and events but the files hold {counted}; prepare the "
            "data anew."
        )
    return dataclasses.replace(found, bad_rows=about.bad_rows, has_times=about.has_times)


def check_prepared(path: str | Path) -> About:
    """Check every byte of a folder of prepared data, and give what it says of itself."""
    folder = settled_folder(Path(path))
    about = read_about(folder)
    for name in (EVENTS_FILE, ITEMS_FILE):
        file, stated = folder / name, about.files.get(name)
        if stated is None:
            raise DataFolderError(f"{folder / ABOUT_FILE} does not name {name}; prepare the data anew.")
        try:
            found = describe(file)
        except OSError as error:
            raise DataFolderError(f"{file} cannot be read ({error}); prepare the data anew.") from error
        if found != stated:
            raise DataFolderError(
                f"{file} is damaged: it has {found.size} bytes and checksum {found.checksum} but {stated.size} and "
                f"{stated.checksum} were written; prepare the data anew."
            )
    return about


def read_about(path: str | Path) -> About:
    """Read what a folder of prepared data says of itself, without reading the data."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  (importing railsearch stays cheap)

    file = settled_folder(Path(path)) / ABOUT_FILE
    try:
        stated = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataFolderError(f"{file} does not exist; give a folder that `railsearch data prepare` wrote.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataFolderError(f"{file} cannot be read ({error}); prepare the data anew.") from error
    if not isinstance(stated, dict) or stated.pop("format", None) != FORMAT:
        raise DataFolderError(f"{file} is not about prepared data; give another folder.")
    version = stated.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise DataFolderError(
            f"{file} has format version {version} but this railsearch reads {FORMAT_VERSION}; prepare the data anew."
        )
    try:
        return TypeAdapter(About).validate_python(stated)
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, detail["loc"])) for detail in error.errors())
        raise DataFolderError(f"{file} is damaged in: {wrong}; prepare the data anew.") from error


def check_target(path: str | Path, *, overwrite: bool) -> None:
    """Check that a folder may be written, before any work is done for it."""
    target = settled_folder(Path(path))
    if not target.exists():
        return
    if not overwrite:
        raise InvalidInputError(
            f"{target} exists already; choose another, or replace it with overwrite=True (--overwrite)."
        )
    is_ours = target.is_dir() and {file.name for file in target.iterdir()} <= {ABOUT_FILE, EVENTS_FILE, ITEMS_FILE}
    if not is_ours:
        raise InvalidInputError(
            f"{target} holds other files than prepared data, and will not be replaced; choose another folder."
        )


def write_files(
    interactions: Interactions,
    folder: Path,
    *,
    name: str,
    terms: str | None,
    min_count: int,
    num_left_out: int,
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
    tables = {EVENTS_FILE: events, ITEMS_FILE: items}
    for file, table in tables.items():
        table.write_parquet(folder / file)
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
        num_left_out=num_left_out,
        bad_rows=interactions.bad_rows,
        files={file: describe(folder / file) for file in tables},
    )
    stated = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(about)}
    (folder / ABOUT_FILE).write_text(json.dumps(stated, indent=2) + "\n")
    return about


def _date(second: int) -> str | None:
    """A second as a date; None where it is in no year that a date can have."""
    try:
        return dt.datetime.fromtimestamp(second, dt.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


register_opener(FORMAT, read_prepared, config_file=ABOUT_FILE)
