"""Every error that railsearch raises on purpose; see the tree in `railsearch.foundation.errors`."""

from railsearch.foundation.errors import (
    DataFolderError,
    DownloadError,
    EngineError,
    FingerprintError,
    IdExistsError,
    IndexFolderError,
    IndexLockedError,
    InvalidInputError,
    MissingExtraError,
    ModelFolderError,
    NotEnoughItemsError,
    RailsearchError,
    StorageError,
    TrainingError,
)

__all__ = [
    "DataFolderError",
    "DownloadError",
    "EngineError",
    "FingerprintError",
    "IdExistsError",
    "IndexFolderError",
    "IndexLockedError",
    "InvalidInputError",
    "MissingExtraError",
    "ModelFolderError",
    "NotEnoughItemsError",
    "RailsearchError",
    "StorageError",
    "TrainingError",
]
