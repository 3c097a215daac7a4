"""The config.json of a model folder: it says what the folder holds, and proves itself by a checksum."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from railsearch.foundation.errors import ModelFolderError

CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class ConfigFormat:
    """One kind of model folder."""

    name: str
    """What config.json says under "format"."""
    version: int
    what: str
    """The model, as messages call it."""
    writer: str
    """The call that writes such a folder."""

    def write(self, folder: Path, content: dict[str, Any]) -> None:
        """Write config.json; everything else must be in the folder by then."""
        config = {"format": self.name, "format_version": self.version, **content}
        config["checksum"] = _checksum(config)
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")

    def read(self, folder: Path) -> dict[str, Any]:
        """Read config.json; refuse what is damaged, foreign or of another version."""
        config = self._read(folder)
        if config.pop("checksum", None) != _checksum(config):
            raise ModelFolderError(
                f"{folder / CONFIG_FILE} was changed or damaged after saving; restore it from a copy."
            )
        return config

    def is_in(self, folder: Path) -> bool:
        """Whether a folder says that it holds such a model, damaged or not."""
        try:
            self._read(folder)
        except ModelFolderError:
            return False
        return True

    def _read(self, folder: Path) -> dict[str, Any]:
        file = folder / CONFIG_FILE
        try:
            config = json.loads(file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise ModelFolderError(f"{file} does not exist; give a folder that {self.writer} wrote.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise ModelFolderError(f"{file} cannot be read ({error}); restore it from a copy.") from error
        if not isinstance(config, dict) or config.get("format") != self.name:
            raise ModelFolderError(f"{file} is not the config of a railsearch {self.what}; give another folder.")
        if config.get("format_version") != self.version:
            raise ModelFolderError(
                f"{file} has format version {config.get('format_version')} but this railsearch reads {self.version}; "
                "install the railsearch that wrote it."
            )
        return config


def _checksum(config: dict[str, Any]) -> str:
    """Of what config.json states, but for the checksum itself and however it is laid out."""
    return xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())
