"""The replace-or-refuse rule: a folder is replaced only if railsearch wrote it and it holds no other files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railsearch.folders.sealed import FolderFormat
from railsearch.foundation.errors import InvalidInputError, RailsearchError, StorageError
from railsearch.foundation.files import new_folder, settled_folder
from railsearch.foundation.targets import check_writable


def check_target(kind: FolderFormat, target: Path, *, overwrite: bool) -> None:
    """Refuse a target folder that must not be written; call it before any work is done for the folder."""
    try:
        current = settled_folder(target)
        is_there = current.exists()
        is_ours = is_there and kind.is_alone_in(current)
    except OSError as error:
        raise _unwritable(target, error) from error
    check_writable(target.parent)
    if is_there and not overwrite:
        raise InvalidInputError(f"{target} already exists; choose another path or pass overwrite=True.")
    if is_there and not is_ours:
        raise InvalidInputError(
            f"{target} holds other files than a railsearch {kind.noun}, and will not be replaced; choose another path."
        )


@contextmanager
def writing(kind: FolderFormat, target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder to write into, which takes the place of `target` when the block ends.

    If the process is killed at any moment, either the old or the new folder remains. After an exception in the
    block, the target is unchanged.
    """
    check_target(kind, target, overwrite=overwrite)
    try:
        with new_folder(target, replaces=overwrite) as folder:
            yield folder
    except RailsearchError:
        raise  # some are OSErrors too, such as a failed download
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> StorageError:
    return StorageError(f"{target} cannot be written ({error.strerror or error}); nothing was changed.")
