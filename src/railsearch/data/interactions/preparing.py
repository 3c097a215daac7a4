"""From original files, or a publisher's address, to a folder of prepared data."""

import dataclasses
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from railsearch.data.interactions.columns import TimeUnit
from railsearch.data.interactions.download import download, unpack
from railsearch.data.interactions.frequent import keep_frequent
from railsearch.data.interactions.interactions import Interactions
from railsearch.data.interactions.prepared import About, check_target, write_files
from railsearch.data.interactions.public_files import read_sequences
from railsearch.data.interactions.published import PUBLISHED, Published
from railsearch.data.interactions.tables import TABLES, read_interactions
from railsearch.foundation.errors import DataFolderError, InvalidInputError, RailsearchError
from railsearch.foundation.files import new_folder
from railsearch.foundation.inputs import check_count

logger = logging.getLogger(__name__)

SEQUENCES = ".txt"
ORIGINALS = "originals"
"""Where downloads are until they are read; never part of a prepared folder."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How a table of your own is read, as `read_interactions` explains."""

    user: str = "user"
    item: str = "item"
    timestamp: str | None = "timestamp"
    rating: str | None = None
    time_unit: str = TimeUnit.SECONDS
    items: str | Path | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A folder that was prepared, and what is in it."""

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
        name: ml-1m, ml-20m or books for a published collection; any other for a file of your own.
        source: where its files are: the folder or the zip archive of MovieLens, ratings_Books.csv or its folder; your
            own CSV, Parquet or Arrow table, or .txt file of sequences. None downloads a published collection.
        target: the folder to write, by default data/NAME.
        table: how a table of your own is read.
        min_count: leave out users and items with fewer events, as `keep_frequent` does. By default 5 for books, as in
            the paper, and none elsewhere; 0 leaves out none.
        max_bad_rows: rows that cannot be read are left out and reported up to this number; with more, nothing is
            prepared.
        accept_terms: you accept the terms of use of what is downloaded.
        overwrite: replace a folder of prepared data that is there already.
        show_progress: draw progress bars; by default only on a terminal.
    """
    folder = usual_target(name) if target is None else Path(target)
    published = PUBLISHED.get(name)
    check_target(folder, overwrite=overwrite)
    check_count(max_bad_rows, name="max_bad_rows", minimum=0)
    if min_count is None:
        min_count = 0 if published is None else published.min_count
    check_count(min_count, name="min_count", minimum=0)
    if published is None:
        _check_own(name, source, table)
    else:
        _check_published(name, published, source, table, accept_terms=accept_terms)
    try:
        with new_folder(folder, replaces=overwrite) as written:
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
                num_left_out=len(found) - len(kept),
            )
    except RailsearchError:
        raise
    except OSError as error:
        raise DataFolderError(f"{folder} cannot be prepared ({error}); it is as it was.") from error
    return Prepared(folder, about)


def usual_target(name: str) -> Path:
    """Where data of this name is prepared when nothing else is said."""
    return Path("data", name)


def _check_own(name: str, source: str | Path | None, table: TableOptions | None) -> None:
    known = ", ".join(PUBLISHED)
    if not name or Path(name).name != name or name.startswith("."):
        raise InvalidInputError(f"name is {name!r}; give a plain name: {known}, or one for data of your own.")
    if source is None:
        raise InvalidInputError(f"{name!r} is no published collection ({known}); pass a file of your own with --from.")
    path = Path(source)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder, and {name!r} no published collection ({known}); pass a file.")
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist; pass a file that does.")
    if path.suffix not in (*TABLES, SEQUENCES):
        raise InvalidInputError(
            f"{path} has a format that is not known; pass a table ({', '.join(TABLES)}) or sequences ({SEQUENCES})."
        )
    if path.suffix == SEQUENCES and table is not None:
        raise InvalidInputError(f"{path} is a file of sequences, which has no columns; leave out what is said of them.")


def _check_published(
    name: str, published: Published, source: str | Path | None, table: TableOptions | None, *, accept_terms: bool
) -> None:
    if table is not None:
        raise InvalidInputError(
            f"{name} has columns of its own; leave out what is said of them, or choose another name."
        )
    if source is None and not accept_terms:
        raise InvalidInputError(
            f"{name} is downloaded under the terms of use at {published.terms} ({published.gist}); accept them with "
            "--accept-terms (accept_terms=True), or pass files that you have with --from."
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
            "%s has %s events but %s were published; is it whole?",
            source or published.address,
            f"{len(found) + len(found.bad_rows):,}",
            f"{published.num_events:,}",
        )
    if source is None or is_packed:
        found = dataclasses.replace(found, source=published.address if source is None else str(source))
    return found


def _place_of(name: str, published: Published, path: Path) -> Path:
    """The folder of the files, or the one file, in a place that was given: there, or in a folder of that name."""
    is_one = len(published.files) == 1
    if is_one and path.is_file():
        return path
    for folder in (path, path / name):
        if all((folder / file).is_file() for file in published.files):
            return folder / published.files[0] if is_one else folder
    if not path.is_dir():
        what = "no folder and no zip archive" if path.exists() else "not there"
        raise InvalidInputError(f"{path} is {what}; pass the folder of {' and '.join(published.files)}.")
    missing = next(file for file in published.files if not (path / file).is_file())
    raise InvalidInputError(
        f"{path / missing} does not exist; {published.title} is read from {' and '.join(published.files)}."
    )
