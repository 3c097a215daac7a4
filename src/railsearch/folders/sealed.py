"""The sealed config of a folder: a JSON file that states format and files, protected by a checksum."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from railsearch.folders.checked_files import check_file, describe_files, list_files, read_checked
from railsearch.foundation.errors import ModelFolderError, RailsearchError
from railsearch.foundation.files import FileEntry
from railsearch.foundation.safe_files import read_inside

CONFIG_FILE = "config.json"
CARD_FILE = "README.md"
LARGEST_CONFIG = 2**26
"""Bytes. A config that is larger was not written by railsearch."""


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """One kind of folder: its name, and everything that it may hold."""

    name: str
    """The value of "format" in the config."""
    version: int
    noun: str
    """The name of the content in messages, such as "recommender"."""
    writer: str
    """The call that writes such a folder."""
    files: frozenset[str] = frozenset()
    """Files and subfolders at the top whose checksums the config states."""
    free: frozenset[str] = frozenset()
    """Files at the top that people may edit; they have no checksum."""
    inner: Mapping[str, "FolderFormat"] = field(default_factory=dict)
    """Subfolders that have their own sealed config."""
    config_file: str = CONFIG_FILE
    error: type[RailsearchError] = ModelFolderError
    """Raised for a folder that is missing, damaged or foreign."""
    remedy: str = "restore it from a copy"

    def write(self, folder: Path, content: Mapping[str, object]) -> None:
        """Write the config; all other files must be in the folder already."""
        (folder / self.config_file).write_text(self.encode(folder, content))

    def encode(self, folder: Path, content: Mapping[str, object]) -> str:
        """Return the text of the config; all other files must be in the folder already."""
        entries = describe_files(folder, self.files)
        files = {name: {"size": entry.size, "checksum": entry.checksum} for name, entry in entries.items()}
        config = {"format": self.name, "format_version": self.version, "files": files, **content}
        config["checksum"] = _checksum(config)
        return json.dumps(config, indent=2) + "\n"

    def read(self, folder: Path) -> dict[str, Any]:
        """Read the config; refuse one that is damaged, foreign or of another version. Other files are not read."""
        config = self._read_stated(folder)
        if config.pop("checksum", None) != _checksum(config):
            raise self.error(f"{folder / self.config_file} was changed or damaged after saving; {self.remedy}.")
        if not isinstance(config.get("files"), dict):
            raise self.error(f"{folder / self.config_file} lists no files; {self.remedy}.")
        return config

    def check_files(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Check that the folder holds exactly the files that its config lists, with the same sizes and checksums."""
        entries = {name: self._entry(folder, config, name) for name in config["files"]}
        for name, entry in entries.items():
            check_file(folder, name, entry, error=self.error, remedy=self.remedy)
        for name in list_files(folder, self.files):
            if name not in entries:
                raise self.error(f"{folder / name} is not in the list of {self.config_file}; remove the file.")

    def read_file(self, folder: Path, config: Mapping[str, Any], name: str) -> bytes:
        """Read one file that the config lists, and check it."""
        entry = self._entry(folder, config, name)
        return read_checked(folder, name, entry, error=self.error, remedy=self.remedy)

    def is_in(self, folder: Path) -> bool:
        """Return True if a folder states this format, even if its config is damaged."""
        return stated_format(folder, self.config_file) == self.name

    def is_alone_in(self, folder: Path) -> bool:
        """Return True if a folder states this format and holds nothing that railsearch did not write."""
        if not folder.is_dir() or not self.is_in(folder):
            return False
        known = {self.config_file, *self.files, *self.free, *self.inner}
        if {entry.name for entry in folder.iterdir()} - known:
            return False
        stated = _read_json(folder, self.config_file).get("files")
        listed = stated if isinstance(stated, dict) else {}
        if any("/" in name and name not in listed for name in list_files(folder, self.files)):
            return False
        return all(inner.is_alone_in(folder / name) for name, inner in self.inner.items() if (folder / name).exists())

    def _entry(self, folder: Path, config: Mapping[str, Any], name: str) -> FileEntry:
        """Return the size and checksum that the config states for a file of this format."""
        file, stated = folder / self.config_file, config["files"].get(name)
        if stated is None:
            raise self.error(f"{file} does not list {name}; {self.remedy}.")
        top, _, rest = name.partition("/")
        if top not in self.files or ".." in rest.split("/"):
            raise self.error(f"{file} lists {name!r}, which is not a file of a {self.noun}; {self.remedy}.")
        try:
            size, checksum = stated["size"], stated["checksum"]
        except (TypeError, KeyError):
            size = checksum = None
        if type(size) is not int or not isinstance(checksum, str):
            raise self.error(f"{file} states no size and checksum of {name}; {self.remedy}.")
        return FileEntry(size, checksum)

    def _read_stated(self, folder: Path) -> dict[str, Any]:
        file = folder / self.config_file
        try:
            config = _read_json(folder, self.config_file)
        except (FileNotFoundError, NotADirectoryError):
            model = model_inside(folder)
            remedy = f"a folder that {self.writer} wrote" if model is None else f"{model}, which holds a model"
            raise self.error(f"{file} does not exist; give {remedy}.") from None
        except (OSError, ValueError, RecursionError) as error:
            cause = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise self.error(f"{file} cannot be read ({cause}); {self.remedy}.") from error
        if config.get("format") != self.name:
            raise self.error(f"{file} is not the config of a railsearch {self.noun}; give another folder.")
        if config.get("format_version") != self.version:
            raise self.error(
                f"{file} has format version {config.get('format_version')} but this railsearch reads {self.version}; "
                "install the railsearch that wrote it."
            )
        return config


def model_inside(folder: Path) -> Path | None:
    """Return the model in the folder of a training run, which people give in its place; None if there is none."""
    model = folder / "model"
    return None if stated_format(model) is None else model


def stated_format(folder: Path, config_file: str = CONFIG_FILE) -> str | None:
    """Return the format that a folder's config states, or None if there is no such config."""
    try:
        name = _read_json(folder, config_file).get("format")
    except (OSError, ValueError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if the file holds another value."""
    content = json.loads(read_inside(folder, name, largest=LARGEST_CONFIG))
    return content if isinstance(content, dict) else {}


def _checksum(config: Mapping[str, object]) -> str:
    """Return the checksum of what a config states, apart from the checksum itself and the layout of the file."""
    return xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())
