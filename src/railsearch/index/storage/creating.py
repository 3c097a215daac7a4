"""Creation of an index folder: complete or missing, with errors that name the path."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from railsearch.foundation.errors import RailsearchError, StorageError
from railsearch.foundation.files import new_folder


@contextlib.contextmanager
def new_index(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes the index when the block ends."""
    with contextlib.ExitStack() as stack:
        with creating(target):
            folder = stack.enter_context(new_folder(target))
        yield folder
        with creating(target):
            stack.close()


@contextlib.contextmanager
def creating(target: Path) -> Iterator[None]:
    """Turn an error of the operating system into one that names the path and the remedy."""
    try:
        yield
    except RailsearchError:
        raise
    except OSError as error:
        raise StorageError(
            f"{target} cannot be created ({error.strerror}); check permissions and disk, or choose another path."
        ) from error
