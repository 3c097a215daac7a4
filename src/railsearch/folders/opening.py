"""The registry of openers: each package registers how its folders are opened, and `open_folder` finds the right one."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from railsearch.folders.sealed import CONFIG_FILE, model_inside, stated_format
from railsearch.foundation.errors import ModelFolderError
from railsearch.foundation.files import settled_folder
from railsearch.foundation.inputs import as_path


@dataclass(frozen=True, slots=True)
class _Opener:
    """A way to recognize and open the folders of one format."""

    format_name: str
    open: Callable[[Path], object]
    config_file: str
    is_in: Callable[[Path], bool] | None

    def recognizes(self, folder: Path) -> bool:
        if self.is_in is not None:
            return self.is_in(folder)
        return stated_format(folder, self.config_file) == self.format_name


_openers: dict[str, _Opener] = {}


def register_opener(
    format_name: str,
    opener: Callable[[Path], object],
    *,
    config_file: str = CONFIG_FILE,
    is_in: Callable[[Path], bool] | None = None,
) -> None:
    """Register how folders of a format are opened.

    Args:
        format_name: the value of "format" in the sealed config.
        opener: takes the path and returns the content; it refuses a damaged folder.
        config_file: the name of the sealed config.
        is_in: recognizes a folder that has no sealed config.
    """
    _openers[format_name] = _Opener(format_name, opener, config_file, is_in)


def format_of(path: str | Path) -> str | None:
    """Return the format of a folder that railsearch wrote, such as "railsearch.index"; None for any other path."""
    folder = settled_folder(as_path(path))
    if not os.path.isdir(folder):  # noqa: PTH112  (Path.is_dir raises if a name is too long)
        return None
    return next((name for name, opener in _openers.items() if opener.recognizes(folder)), None)


def open_folder(path: str | Path) -> object:
    """Open a folder of any registered format; refuse any other path."""
    target = as_path(path)
    name = format_of(target)
    if name is None:
        model = model_inside(target)
        if model is not None:
            raise ModelFolderError(f"{target} is not the folder of a model, but {model} is; give that one.")
        state = "is not a folder that railsearch wrote" if os.path.exists(settled_folder(target)) else "does not exist"  # noqa: PTH110
        known = ", ".join(sorted(each.removeprefix("railsearch.").replace("_", " ") for each in _openers))
        raise ModelFolderError(f"{target} {state}; give the folder of one of: {known}.")
    return _openers[name].open(target)
