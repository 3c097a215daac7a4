"""Files in the formats of TREC: checks of ids and targets, and lines that are written as a whole."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from railsearch.foundation.errors import InvalidInputError, StorageError
from railsearch.foundation.files import new_file


def check_ids(ids: Sequence[str], kind: str) -> None:
    """Refuse ids that are empty or have white space, which separates the columns of a TREC file."""
    wrong = next((name for name in ids if not name or name.split() != [name]), None)
    if wrong is not None:
        raise InvalidInputError(
            f"the {kind} id {wrong!r:.80} is empty or has white space, which separates the columns of TREC files; "
            "rename it in the data."
        )


def check_tag(tag: str) -> None:
    """Refuse the name of a system that is empty or has white space."""
    if not tag or tag.split() != [tag]:
        raise InvalidInputError(f"tag is {tag!r:.80}; give a name of the system without white space.")


def check_targets(targets: Iterable[Path], *, overwrite: bool) -> None:
    """Refuse files that must not or cannot be written; call it before any work is done for them."""
    for target in targets:
        if target.is_dir():
            raise InvalidInputError(f"{target} is a folder; give a file to write.")
        if target.exists() and not overwrite:
            raise InvalidInputError(f"{target} already exists; choose another path or pass overwrite=True.")
        if not target.absolute().parent.is_dir():
            raise InvalidInputError(f"{target} cannot be written: there is no folder {target.parent}; create it first.")


def write_lines(target: Path, lines: Iterable[str]) -> None:
    """Write a file; after an error, an earlier one is unchanged."""
    try:
        with new_file(target) as file, file.open("w", encoding="utf-8", newline="\n") as opened:
            opened.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise StorageError(f"{target} cannot be written ({error.strerror or error}); nothing was changed.") from error
