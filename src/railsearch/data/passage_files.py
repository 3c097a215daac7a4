"""Files of JSON objects, line by line, plain or packed; what is wrong in them is said with its line."""

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

from railsearch.data.passages import checked_text
from railsearch.data.text_files import existing_file
from railsearch.errors import InvalidInputError
from railsearch.progress import counting

MEGABYTE = 10**6
LINES_PER_COUNT = 1000
ARCHIVES = (".tar", ".tar.gz", ".tar.xz", ".tgz", ".txz")
READING_ERRORS = (lzma.LZMAError, zlib.error, EOFError, OSError, tarfile.TarError)


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a file, and where it is."""

    fields: dict[str, object]
    file: str
    line: int

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"line {self.line} of {self.file}"

    def value(self, name: str) -> object:
        """What a field holds, if the object has it."""
        if name not in self.fields:
            raise InvalidInputError(
                f"{self.file} has no field {name!r} in line {self.line}; its fields are: {', '.join(self.fields)}."
            )
        return self.fields[name]

    def text(self, name: str) -> str:
        """The text of a field; none is empty."""
        return checked_text(self.value(name), name, self.place)

    def id(self, name: str) -> str:
        """The id in a field: text or a whole number."""
        return _as_id(self.value(name), name, self.place)

    def texts(self, name: str) -> list[str]:
        """The texts in a list; none is empty."""
        return [checked_text(value, name, self.place) for value in self._list(name)]

    def ids(self, name: str) -> list[str]:
        """The ids in a list."""
        return [_as_id(value, name, self.place) for value in self._list(name)]

    def _list(self, name: str) -> list[object]:
        values = self.value(name)
        if not isinstance(values, list):
            raise InvalidInputError(f"the {name} in {self.place} is no list; give one.")
        return values


def read_json_lines(path: str | Path, *, show_progress: bool | None = None) -> Iterator[Record]:
    """The objects of a file, one a line; .gz and .xz files are unpacked, and blank lines are none."""
    for line, text in read_text_lines(path, show_progress=show_progress):
        yield _record(text, str(path), line)


def read_text_lines(path: str | Path, *, show_progress: bool | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers; .gz and .xz files are unpacked."""
    file = existing_file(path)
    size = file.stat().st_size
    with (
        file.open("rb") as packed,
        counting(f"reading {file.name} (MB)", size // MEGABYTE, is_shown=show_progress) as count,
    ):
        done = 0
        for line, text in _text_lines(_unpacked(packed, file), str(file)):
            if line % LINES_PER_COUNT == 0:
                count(packed.tell() // MEGABYTE - done)
                done = packed.tell() // MEGABYTE
            yield line, text


def read_json_list(path: str | Path) -> list[object]:
    """A file that is one JSON list."""
    file = existing_file(path)
    try:
        entries = json.loads(file.read_bytes())
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not utf-8 text at byte {error.start}; save it as utf-8.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file} cannot be read as JSON ({error}); restore the original file.") from error
    if not isinstance(entries, list):
        raise InvalidInputError(f"{file} holds no JSON list; restore the original file.")
    return entries


class Folder:
    """Files by their names, in a folder or in a tar archive of one, from which nothing is written to disk."""

    def __init__(self, path: Path, archive: tarfile.TarFile | None, show_progress: bool | None) -> None:
        self._path = path
        self._archive = archive
        self._show_progress = show_progress

    def records(self, name: str) -> Iterator[Record]:
        """The objects of one of the files."""
        if self._archive is None:
            self._check(name, is_there=(self._path / name).is_file())
            yield from read_json_lines(self._path / name, show_progress=self._show_progress)
            return
        file = f"{name} in {self._path}"
        try:
            # Names, not paths: where in the archive a file is does not matter, and links are no files.
            members = [entry for entry in self._archive if entry.isfile() and Path(entry.name).name == name]
            self._check(name, is_there=len(members) == 1)
            content = self._archive.extractfile(members[0])
        except READING_ERRORS as error:
            raise _unreadable(self._path, error) from error
        assert content is not None  # it is a file
        for line, text in _text_lines(content, file):
            yield _record(text, file, line)

    def _check(self, name: str, *, is_there: bool) -> None:
        if not is_there:
            raise InvalidInputError(f"{self._path} holds no file {name}, or several; restore the original files.")


@contextmanager
def open_folder(path: str | Path, *, show_progress: bool | None = None) -> Iterator[Folder]:
    """Open a folder, or a tar archive of one, to read files by their names."""
    place = Path(path)
    if place.is_dir():
        yield Folder(place, None, show_progress)
        return
    if not place.is_file() or not place.name.endswith(ARCHIVES):
        raise InvalidInputError(f"{place} is no folder and no archive ({', '.join(ARCHIVES)}); give one of them.")
    try:
        archive = tarfile.open(place)  # noqa: SIM115  (closed below)
    except READING_ERRORS as error:
        raise _unreadable(place, error) from error
    with archive:
        yield Folder(place, archive, show_progress)


def _unpacked(packed: IO[bytes], file: Path) -> IO[bytes]:
    if file.suffix == ".gz":
        return gzip.GzipFile(fileobj=packed)  # type: ignore[return-value]  # reads as such a file does
    return lzma.LZMAFile(packed) if file.suffix == ".xz" else packed


def _text_lines(content: IO[bytes], file: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    try:
        for number, line in enumerate(content, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise InvalidInputError(f"{file} is not utf-8 text in line {number}; save it as utf-8.") from error
            if text:
                yield number, text
    except READING_ERRORS as error:
        raise _unreadable(file, error) from error


def _record(text: str, file: str, line: int) -> Record:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file} holds no JSON in line {line} ({error}); repair it.") from error
    if not isinstance(fields, dict):
        raise InvalidInputError(f"{file} holds {text[:40]!r} in line {line}; give a JSON object a line.")
    return Record(fields, file, line)


def _as_id(value: object, name: str, place: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return checked_text(value, name, place)


def _unreadable(file: object, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{file} cannot be read ({error}); restore the original file.")
