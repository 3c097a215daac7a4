"""Every error that railsearch raises on purpose; see the tree in `railsearch.foundation.errors`."""

from railsearch.foundation.errors import (
    DataFolderError,
    DownloadError,
    FingerprintError,
    IndexFolderError,
    IndexLockedError,
    InvalidInputError,
    MissingExtraError,
    ModelFolderError,
    NotEnoughItemsError,
    RailsearchError,
    TrainingError,
)

__all__ = [
    "DataFolderError",
    "DownloadError",
    "FingerprintError",
    "IndexFolderError",
    "IndexLockedError",
    "InvalidInputError",
    "MissingExtraError",
    "ModelFolderError",
    "NotEnoughItemsError",
    "RailsearchError",
    "TrainingError",
]
