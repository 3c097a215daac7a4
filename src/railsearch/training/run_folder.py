"""The folder of a run, checked before data are read: it must be new, or hold a run, and it must be writable."""

from pathlib import Path

from railsearch.folders import format_of
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.targets import check_writable


def check_run_folder(folder: Path) -> None:
    """Refuse a folder that cannot hold a run: a file, one without permission, or a model, an index or data.

    Raises:
        InvalidInputError: something else is there.
        StorageError: the folder cannot be written.
    """
    check_writable(folder)
    found = format_of(folder)
    if found is not None:
        noun = found.removeprefix("railsearch.").replace("_", " ")
        raise InvalidInputError(
            f"{folder} is a railsearch folder of another kind ({noun}); a run needs a folder of its own."
        )
