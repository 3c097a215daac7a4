"""Adding items to a saved recommender and to its index, so that both fit together whenever the process is killed.

The model folder is replaced first. A model accepts the indexes of its ancestors, the models before items were added, so
an index that lacks new items still works; the same call again adds them. The commit that adds them also states the new
model as the source of the index.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from railsearch.foundation.errors import (
    FingerprintError,
    IdExistsError,
    InvalidInputError,
    RailsearchError,
    StorageError,
)
from railsearch.foundation.files import only_changer, settled_folder
from railsearch.foundation.inputs import ArrowTable
from railsearch.index import Index, ModelSource
from railsearch.recommender.answers import index_columns, index_ids
from railsearch.recommender.folder import FORMAT, SavedRecommender, write_recommender
from railsearch.recommender.indexing import missing_rows, source_of
from railsearch.recommender.new_items import grow


@dataclass(frozen=True, slots=True)
class AddedItems:
    """The result of adding items to a recommender."""

    num_added: int
    """Items that the model did not have; 0 if the call repeats an earlier one."""
    num_indexed: int
    """Items that were added to the index; they include those that an interrupted call had left out."""
    num_items: int
    """Items of the model now."""
    fingerprint: str
    """Fingerprint of the model now."""
    index_version: int | None
    """The version of the index now; None without an index."""


def save(saved: SavedRecommender, target: Path, *, overwrite: bool) -> Path:
    """Write the folder of a recommender, and return its absolute path."""
    write_recommender(saved, target, overwrite=overwrite)
    return target.resolve()


def add_items(
    saved: SavedRecommender,
    table: ArrowTable,
    *,
    folder: Path | None,
    index: Index | None,
    on_grown: Callable[[SavedRecommender], None],
    show_progress: bool | None,
) -> AddedItems:
    """Add the items of a table to a recommender, to its folder and to its index.

    Args:
        saved: the recommender before.
        table: the new items, as in `grow`.
        folder: the folder of the recommender, which is replaced; None if it was never saved.
        index: the index that the recommender searches; None if there is none.
        on_grown: called with the grown recommender as soon as it is saved.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    if index is not None:
        source_of(saved, folder).check(index)
        if index.path is not None and folder is None:
            raise InvalidInputError(
                f"the index is in {index.path} but the model was never saved, so nothing could search the index after "
                "this process; save the model first."
            )
    grown = grow(saved, table)
    num_added = len(grown.items) - len(saved.items)
    with _changing(folder, saved):
        if index is not None and num_added:
            _check_absent(index, grown, num_added)
        if num_added:
            if folder is not None:
                write_recommender(grown, folder, overwrite=True)
            on_grown(grown)
        try:
            num_indexed = 0 if index is None else _complete(index, grown, source_of(grown, folder), show_progress)
        except (RailsearchError, OSError) as error:
            kind = type(error) if isinstance(error, RailsearchError) else StorageError
            raise kind(
                f"the items are in the model but not in the index ({str(error).rstrip('.')}); then call add_items "
                "again with the same table."
            ) from error
    version = None if index is None else index.version
    return AddedItems(num_added, num_indexed, len(grown.items), grown.fingerprint, version)


@contextmanager
def _changing(folder: Path | None, saved: SavedRecommender) -> Iterator[None]:
    """Keep other processes from changing the model folder, and check that none has changed it before."""
    if folder is None:
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(only_changer(folder))
            stated = FORMAT.read(settled_folder(folder)).get("fingerprint")
        except BlockingIOError as error:
            raise StorageError(f"another process is adding items to {folder}; wait until it is done.") from error
        except RailsearchError:
            raise
        except OSError as error:
            cause = error.strerror or error
            raise StorageError(f"{folder} cannot be changed ({cause}); nothing was changed.") from error
        if stated != saved.fingerprint:
            raise FingerprintError(
                f"{folder} holds model {stated} but this is {saved.fingerprint}: it was changed since it was loaded; "
                "load it again with Recommender.load and call add_items again."
            )
        yield


def _check_absent(index: Index, grown: SavedRecommender, num_added: int) -> None:
    """Refuse to add an item whose id the index has already, from elsewhere."""
    ids = index_ids(grown.items)[-num_added:]  # (n,)
    present = (index.find(ids) >= 0).nonzero().flatten()
    if len(present):
        raise IdExistsError(
            f"the index has an item with id {int(ids[present[0]])} but the model does not know it; remove it from the "
            "index first."
        )


@torch.no_grad()
def _complete(index: Index, saved: SavedRecommender, source: ModelSource, show_progress: bool | None) -> int:
    """Add all items that the index lacks in one commit, which states the new source; return their number."""
    rows = missing_rows(index, saved)  # (n,)
    if len(rows):
        index.contents.put(
            saved.model.encoder.embed_items(rows),
            index_ids(saved.items)[rows],
            metadata=index_columns(saved.items[rows.numpy()]),
            replaces=False,
            show_progress=show_progress,
            source=source.to_dict(),
        )
    return len(rows)
