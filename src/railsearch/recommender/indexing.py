"""The index of a recommender's items: how to build and open it, and the items that it lacks."""

import logging
from pathlib import Path

import torch
from torch import Tensor

from railsearch.index import Engine, Index, ModelSource, Precision, ScanPrecision
from railsearch.recommender.answers import index_columns, index_ids
from railsearch.recommender.folder import FORMAT, SavedRecommender

logger = logging.getLogger(__name__)


def source_of(saved: SavedRecommender, folder: Path | None) -> ModelSource:
    """Return the model as the source of an index."""
    ancestors = tuple(each.fingerprint for each in saved.ancestors)
    return ModelSource(FORMAT.name, saved.fingerprint, folder, ancestors)


def build_index(
    saved: SavedRecommender,
    folder: Path | None,
    path: str | Path | None,
    *,
    precision: Precision | str,
    scan: ScanPrecision | str,
    engine: Engine | None,
    show_progress: bool | None,
) -> Index:
    """Index every item of a model that is in `folder`, if it was saved; see `Recommender.build_index`."""
    return Index.build(
        saved.model.similarity,
        saved.model.encoder.embed_items().detach(),
        index_ids(saved.items),
        path=path,
        metadata=index_columns(saved.items),
        precision=precision,
        scan=scan,
        engine=engine,
        source=source_of(saved, folder).to_dict(),
        show_progress=show_progress,
    )


def open_index(
    saved: SavedRecommender, folder: Path | None, path: str | Path, *, version: int | None, engine: Engine | None
) -> Index:
    """Open an index that this model built, and warn if it lacks items; see `Recommender.open_index`."""
    index = source_of(saved, folder).open_index(path, version=version, engine=engine)
    warn_if_behind(index, saved)
    return index


def warn_if_behind(index: Index, saved: SavedRecommender) -> None:
    """Log a warning if an index lacks items that were added to its model."""
    missing = missing_rows(index, saved)
    if len(missing):
        logger.warning(
            "%s lacks %d items that were added to its model, such as %r; call add_items with them again",
            index.path, len(missing), saved.items["item"][int(missing[0])],
        )  # fmt: skip


def missing_rows(index: Index, saved: SavedRecommender) -> Tensor:
    """Return the rows of items (n,) that were added after the model that the index states, and are not in it."""
    built_with = index.source.get("model")
    num_known = {each.fingerprint: each.num_items for each in saved.ancestors}.get(str(built_with), len(saved.items))
    rows = torch.arange(num_known, len(saved.items))  # (n,)
    return rows[index.find(index_ids(saved.items)[rows]) < 0] if len(rows) else rows
