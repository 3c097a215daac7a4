"""Prepare a folder of data from original files, or from a download."""

import dataclasses
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from railsearch.data.interactions.columns import TimeUnit
from railsearch.data.interactions.download import download, unpack
from railsearch.data.interactions.frequent import keep_frequent
from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.prepared import FORMAT, About, write_files
from railsearch.data.interactions.public_files import read_sequences
from railsearch.data.interactions.published import PUBLISHED, Published
from railsearch.data.interactions.tables import read_interactions
from railsearch.data.table_files import TABLES
from railsearch.folders import check_target, writing
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_path, check_count

logger = logging.getLogger(__name__)

SEQUENCES = ".txt"
ORIGINALS = "originals"
"""Folder of downloads until they are read; never part of a prepared folder."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Columns and units of a table of your own; `read_interactions` explains them."""

    user: str = "user"
    item: str = "item"
    timestamp: str | None = "timestamp"
    rating: str | None = None
    time_unit: str = TimeUnit.SECONDS
    items: str | Path | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared folder and its description."""

    folder: Path
    about: About


def prepare(
    name: str,
    source: str | Path | None = None,
    target: str | Path | None = None,
    *,
    table: TableOptions | None = None,
    min_count: int | None = None,
    max_bad_rows: int = 0,
    accept_terms: bool = False,
    overwrite: bool = False,
    show_progress: bool | None = None,
) -> Prepared:
    """Read original files, or download them, and write a folder that `read_prepared` reads.

    Args:
        name: ml-1m, ml-20m or books for a published data set; any other name for a file of your own.
        source: the original files: the folder or zip archive of MovieLens, ratings_Books.csv or its folder; or your
            own CSV, Parquet or Arrow table, or .txt file of sequences. None downloads a published data set.
        target: the folder to write, by default data/NAME.
        table: columns and units of a table of your own.
        min_count: drop users and items with fewer events, as `keep_frequent` does. By default 5 for books, as in the
            paper, and 0 otherwise, which drops none.
        max_bad_rows: skip and report up to this many rows that cannot be read; with more, nothing is prepared.
        accept_terms: you accept the terms of use of the download.
        overwrite: replace an existing folder of prepared data.
        show_progress: draw progress bars; by default only on a terminal.
    """
    folder = usual_target(name) if target is None else as_path(target)
    published = PUBLISHED.get(name)
    check_target(FORMAT, folder, overwrite=overwrite)
    check_count(max_bad_rows, name="max_bad_rows", minimum=0)
    if min_count is None:
        min_count = 0 if published is None else published.min_count
    check_count(min_count, name="min_count", minimum=0)
    if published is None:
        _check_own(name, source, table)
    else:
        _check_published(name, published, source, table, accept_terms=accept_terms)
    with writing(FORMAT, folder, overwrite=overwrite) as written:
        if published is not None:
            found = _read_published(
                name,
                published,
                source,
                originals=written / ORIGINALS,
                max_bad_rows=max_bad_rows,
                show_progress=show_progress,
            )
        else:
            found = _read_own(Path(str(source)), table or TableOptions(), max_bad_rows, show_progress)
        shutil.rmtree(written / ORIGINALS, ignore_errors=True)
        kept = keep_frequent(found, min_count=min_count) if min_count > 1 else found
        about = write_files(
            kept,
            written,
            name=name,
            terms=None if published is None else published.terms,
            min_count=min_count,
            num_dropped=len(found) - len(kept),
        )
    return Prepared(folder, about)


def usual_target(name: str) -> Path:
    """Return the folder that data of this name is prepared in by default."""
    return Path("data", name)


def _check_own(name: str, source: str | Path | None, table: TableOptions | None) -> None:
    known = ", ".join(PUBLISHED)
    if not name or Path(name).name != name or name.startswith("."):
        raise InvalidInputError(f"name is {name!r}; give a plain name: {known}, or one for data of your own.")
    if source is None:
        raise InvalidInputError(
            f"{name!r} is not a published data set ({known}); pass a file of your own with source=PATH."
        )
    path = Path(source)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder, and {name!r} is not a published data set ({known}); pass a file.")
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist; pass an existing file.")
    if path.suffix not in (*TABLES, SEQUENCES):
        raise InvalidInputError(
            f"{path} has an unknown format; pass a table ({', '.join(TABLES)}) or sequences ({SEQUENCES})."
        )
    if path.suffix == SEQUENCES and table is not None:
        raise InvalidInputError(f"{path} is a file of sequences, which has no columns; omit the options for columns.")


def _check_published(
    name: str, published: Published, source: str | Path | None, table: TableOptions | None, *, accept_terms: bool
) -> None:
    if table is not None:
        raise InvalidInputError(f"{name} has known columns; omit the options for columns, or choose another name.")
    if source is None and not accept_terms:
        raise InvalidInputError(
            f"{name} is downloaded under the terms of use at {published.terms} ({published.gist}); accept them with "
            "accept_terms=True, or pass the files with source=PATH."
        )


def _read_own(source: Path, table: TableOptions, max_bad_rows: int, show_progress: bool | None) -> Interactions:
    if source.suffix == SEQUENCES:
        return read_sequences(source, max_bad_rows=max_bad_rows, show_progress=show_progress)
    return read_interactions(
        source,
        user=table.user,
        item=table.item,
        timestamp=table.timestamp,
        rating=table.rating,
        time_unit=table.time_unit,
        items=table.items,
        max_bad_rows=max_bad_rows,
        show_progress=show_progress,
    )


def _read_published(
    name: str,
    published: Published,
    source: str | Path | None,
    *,
    originals: Path,
    max_bad_rows: int,
    show_progress: bool | None,
) -> Interactions:
    if source is None:
        originals.mkdir()
        path = originals / published.address.rpartition("/")[2]
        download(
            published.address, path, sha256=published.sha256, max_bytes=published.max_bytes, show_progress=show_progress
        )
    else:
        path = Path(source)
    is_packed = path.suffix == ".zip" and path.is_file()
    if is_packed:
        originals.mkdir(exist_ok=True)
        unpack(path, published.files, originals, max_bytes=published.max_bytes)
    files = originals if is_packed else _place_of(name, published, path)
    found = published.read(files, max_bad_rows=max_bad_rows, show_progress=show_progress)
    if len(found) + len(found.bad_rows) != published.num_events:
        logger.warning(
            "%s has %s events but %s were published; check that the file is complete",
            source or published.address,
            f"{len(found) + len(found.bad_rows):,}",
            f"{published.num_events:,}",
        )
    if source is None or is_packed:
        found = dataclasses.replace(found, source=published.address if source is None else str(source))
    return found


def _place_of(name: str, published: Published, path: Path) -> Path:
    """Return the folder of the files, or the only file: at the given path, or in a folder of that name below it."""
    is_one = len(published.files) == 1
    if is_one and path.is_file():
        return path
    for folder in (path, path / name):
        if all((folder / file).is_file() for file in published.files):
            return folder / published.files[0] if is_one else folder
    if not path.is_dir():
        what = "is neither a folder nor a zip archive" if path.exists() else "does not exist"
        raise InvalidInputError(f"{path} {what}; pass the folder of {' and '.join(published.files)}.")
    missing = next(file for file in published.files if not (path / file).is_file())
    raise InvalidInputError(
        f"{path / missing} does not exist; {published.title} is read from {' and '.join(published.files)}."
    )
