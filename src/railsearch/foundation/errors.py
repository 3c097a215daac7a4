"""Everything railsearch raises on purpose, in one tree.

RailsearchError
├── InvalidInputError        (also a ValueError) an argument that cannot work, refused before any work
│   └── NotEnoughItemsError  fewer items than the k that was asked for
├── ModelFolderError         (also a ValueError) a model folder that is absent, damaged or foreign
│   └── FingerprintError     the model is intact, but not the one that was expected
├── IndexFolderError         (also a ValueError) an index folder that is absent, damaged, foreign or cannot be written
│   └── IndexLockedError     another writer is at work on it
├── DataFolderError          (also a ValueError) a folder of prepared data that is absent, damaged, foreign or cannot be
│                            written
├── StorageError             (also an OSError) the disk refused a write: full, read-only or failing
├── DownloadError            (also an OSError) a download that failed, or is not the file that was expected
├── MissingExtraError        (also an ImportError) an optional dependency that is not installed
├── EngineError              (also a RuntimeError) a first-stage engine that failed or broke its contract
└── TrainingError            (also a RuntimeError) training went wrong; the best weights so far were kept
"""


class RailsearchError(Exception):
    """Base of every error that railsearch raises on purpose."""


class InvalidInputError(RailsearchError, ValueError):
    """An argument that cannot work; nothing was computed or changed."""


class NotEnoughItemsError(InvalidInputError):
    """A query has fewer items to choose from than the k that was asked for."""


class ModelFolderError(RailsearchError, ValueError):
    """A model folder that is absent, damaged or foreign."""


class FingerprintError(ModelFolderError):
    """The model that was found is not the model that was expected."""


class IndexFolderError(RailsearchError, ValueError):
    """An index folder that is absent, damaged, foreign or cannot be written; what was there before is as it was."""


class IndexLockedError(IndexFolderError):
    """Another writer is at work on the index."""


class DataFolderError(RailsearchError, ValueError):
    """A folder of prepared data that is absent, damaged, foreign or cannot be written."""


class StorageError(RailsearchError, OSError):
    """The disk refused a write: it is full, read-only or failing, or permission is missing.

    The folder that was to be written is unchanged, or missing if it was new.
    """


class DownloadError(RailsearchError, OSError):
    """A download that failed, or is not the file that was expected; nothing of it was kept."""


class MissingExtraError(RailsearchError, ImportError):
    """An optional dependency that is not installed."""


class EngineError(RailsearchError, RuntimeError):
    """A first-stage engine that failed or broke its contract; the index itself is unchanged."""


class TrainingError(RailsearchError, RuntimeError):
    """Training went wrong; the best weights so far were kept."""
