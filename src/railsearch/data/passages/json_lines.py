"""Readers of JSON files, plain or packed; errors name the line."""

import gzip
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from railsearch.data.passages.passages import SHOWN_CHARACTERS, checked_text
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_file
from railsearch.foundation.progress import counting

MEGABYTE = 10**6
LINES_PER_COUNT = 1000
ARCHIVES = (".tar", ".tar.gz", ".tar.xz", ".tgz", ".txz")
READING_ERRORS = (lzma.LZMAError, zlib.error, EOFError, OSError, tarfile.TarError)


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object or row of a file, with its place."""

    fields: dict[str, object]
    file: str | Path
    line: int
    unit: str = "line"
    """The unit in which `line` counts: lines from 1 of a text file, rows from 0 of a Parquet or Arrow table."""

    @property
    def place(self) -> str:
        """The line or row and the file, as text."""
        return f"{self.unit} {self.line} of {self.file}"

    def value(self, name: str) -> object:
        """Return the value of a field; refuse an object without it."""
        if name not in self.fields:
            raise InvalidInputError(
                f"{self.file} has no field {name!r} in {self.unit} {self.line}; its fields are: "
                f"{', '.join(self.fields)}."
            )
        return self.fields[name]

    def text(self, name: str) -> str:
        """Return the text of a field; refuse an empty one."""
        return checked_text(self.value(name), name, self.place)

    def id(self, name: str) -> str:
        """Return the id in a field: text or a whole number."""
        return _as_id(self.value(name), name, self.place)

    def passage_id(self, number: int) -> str:
        """Return the id of a passage, in the field `id` or `_id`; without one, its number in the file."""
        name = next((name for name in ("id", "_id") if name in self.fields), None)
        return str(number) if name is None else self.id(name)

    def has_text(self) -> bool:
        """Return whether title or text hold more than white space."""
        parts = (self.fields.get("title"), self.value("text"))
        return any(not isinstance(part, str) or part.strip() for part in parts if part is not None)

    def titled_text(self) -> str:
        """Return the title, if there is one, a space, and the text; one of the two may be empty."""
        parts = [self.fields.get("title"), self.value("text")]
        texts = [part for part in parts if part is not None and not (isinstance(part, str) and not part.strip())]
        return checked_text(
            " ".join(checked_text(part, "passage", self.place) for part in texts), "passage", self.place
        )

    def texts(self, name: str) -> list[str]:
        """Return the texts in a list; refuse an empty one."""
        return [checked_text(value, name, self.place) for value in self._list(name)]

    def ids(self, name: str) -> list[str]:
        """Return the ids in a list."""
        return [_as_id(value, name, self.place) for value in self._list(name)]

    def _list(self, name: str) -> list[object]:
        values = self.value(name)
        if not isinstance(values, list):
            raise InvalidInputError(f"the {name} in {self.place} is not a list; give a list.")
        return values


def read_json_lines(path: str | Path, *, show_progress: bool | None = None) -> Iterator[Record]:
    """Yield the objects of a file, one for each line; .gz and .xz files are unpacked, and blank lines are skipped."""
    for line, text in _read_text_lines(as_file(path), show_progress):
        yield parse_record(text, path, line)


def parse_record(text: str, file: str | Path, line: int) -> Record:
    """Return the object in a line."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file} holds no JSON in line {line} ({error}); repair it.") from error
    if not isinstance(fields, dict):
        raise InvalidInputError(
            f"{file} holds {text[:SHOWN_CHARACTERS]!r} in line {line}; give one JSON object on each line."
        )
    return Record(fields, file, line)


def read_json_list(path: str | Path, *, show_progress: bool | None = None) -> Iterator[object]:
    """Yield the entries of a file that is one JSON list."""
    file = as_file(path)
    try:
        entries = json.loads(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not utf-8 text at byte {error.start}; save it as utf-8.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file} cannot be read as JSON ({error}); restore the original file.") from error
    if not isinstance(entries, list):
        raise InvalidInputError(f"{file} holds no JSON list; restore the original file.")
    with counting(f"reading {file.name}", len(entries), is_shown=show_progress) as count:
        for number, entry in enumerate(entries, start=1):
            if number % LINES_PER_COUNT == 0 or number == len(entries):
                count((number - 1) % LINES_PER_COUNT + 1)
            yield entry


def question_entry(value: object, place: str) -> tuple[str, list[str]]:
    """Return question and passage ids of an entry [question, passage] or [question, [passages]] of such a list."""
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidInputError(f"{place} is {str(value)[:SHOWN_CHARACTERS]!r}; give [question, passage].")
    passages = value[1] if isinstance(value[1], list) else [value[1]]
    if not passages:
        raise InvalidInputError(f"{place} names no right passage; give at least one.")
    return checked_text(value[0], "question", place), [_as_id(passage, "passage", place) for passage in passages]


class Folder:
    """Files by name, in a folder or in a tar archive, which is not unpacked to disk."""

    def __init__(self, path: Path, archive: tarfile.TarFile | None, show_progress: bool | None) -> None:
        self.path = path
        self._archive = archive
        self._show_progress = show_progress

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self.path / name).is_file() if self._archive is None else self._member(name) is not None

    def records(self, name: str) -> Iterator[Record]:
        """Yield the objects of one of the files, one for each line."""
        for line, text in self.lines(name):
            yield parse_record(text, self.path / name, line)

    def lines(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the lines of one of the files that are not blank, with their numbers."""
        if not self.has(name):
            raise InvalidInputError(f"{self.path} holds no file {name}; restore the original files.")
        if self._archive is None:
            yield from _read_text_lines(self.path / name, self._show_progress)
            return
        member = self._member(name)
        content = None if member is None else self._archive.extractfile(member)
        assert content is not None  # `has` found it, and it is a file
        yield from _text_lines(content, self.path / name)

    def _member(self, name: str) -> tarfile.TarInfo | None:
        """Return a file in any folder of the archive; links do not count as files."""
        assert self._archive is not None
        try:
            members = self._archive.getmembers()
        except READING_ERRORS as error:
            raise _unreadable(self.path, error) from error
        return next((entry for entry in members if entry.isfile() and _ends_with(entry.name, name)), None)


@contextmanager
def open_folder(path: str | Path, *, show_progress: bool | None = None) -> Iterator[Folder]:
    """Open a folder, or a tar archive of one, to read files by their names."""
    place = Path(path)
    if place.is_dir():
        yield Folder(place, None, show_progress)
        return
    if not place.is_file() or not place.name.endswith(ARCHIVES):
        raise InvalidInputError(
            f"{place} is neither a folder nor an archive ({', '.join(ARCHIVES)}); give one of them, "
            "or choose the layout of a file with questions and passages: data.layout=pairs."
        )
    try:
        archive = tarfile.open(place)  # noqa: SIM115  (closed below)
    except READING_ERRORS as error:
        raise _unreadable(place, error) from error
    with archive:
        yield Folder(place, archive, show_progress)


def _read_text_lines(file: Path, show_progress: bool | None) -> Iterator[tuple[int, str]]:
    size = file.stat().st_size
    with (
        file.open("rb") as packed,
        counting(f"reading {file.name} (MB)", size // MEGABYTE, is_shown=show_progress) as count,
    ):
        done = 0
        for line, text in _text_lines(_unpacked(packed, file), file):
            if line % LINES_PER_COUNT == 0:
                count(packed.tell() // MEGABYTE - done)
                done = packed.tell() // MEGABYTE
            yield line, text


def _ends_with(path: str, name: str) -> bool:
    return f"/{path}".endswith(f"/{name}")


def _unpacked(packed: IO[bytes], file: Path) -> IO[bytes]:
    if file.suffix == ".gz":
        return gzip.GzipFile(fileobj=packed)  # type: ignore[return-value]  # it reads like such a file
    return lzma.LZMAFile(packed) if file.suffix == ".xz" else packed


def _text_lines(content: IO[bytes], file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    try:
        for number, line in enumerate(content, start=1):
            if text := decode_line(line, file, number):
                yield number, text
    except READING_ERRORS as error:
        raise _unreadable(file, error) from error


def decode_line(line: bytes, file: Path, number: int) -> str:
    """Return the text of a line without white space around it."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not utf-8 text in line {number}; save it as utf-8.") from error


def _as_id(value: object, name: str, place: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return checked_text(value, name, place)


def _unreadable(file: object, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{file} cannot be read ({error}); restore the original file.")
