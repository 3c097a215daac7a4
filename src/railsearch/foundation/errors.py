"""The tree of all errors that railsearch raises on purpose.

RailsearchError
├── InvalidInputError        (also a ValueError) an argument that cannot work, refused before any work
│   ├── NotEnoughItemsError  fewer items than the requested k
│   └── IdExistsError        an item is added under an id that the index has
├── ModelFolderError         (also a ValueError) a model folder that is missing, damaged or foreign
│   └── FingerprintError     the model is intact, but it is not the expected one
├── IndexFolderError         (also a ValueError) an index folder that is missing, damaged or foreign
│   ├── IndexLockedError     another writer is changing it
│   └── IndexRebuiltError    another index was built at the path of an open one
├── ShardLostError           (also a RuntimeError) a shard of a split index did not answer
├── DataFolderError          (also a ValueError) a folder of prepared data that is missing, damaged or foreign
├── JobFolderError           (also a ValueError) the folder of a batch job that is damaged, in use or of another job
├── StorageError             (also an OSError) a file or folder that cannot be written: a full disk, no permission
├── DownloadError            (also an OSError) a download that failed, or that is not the expected file
├── MissingExtraError        (also an ImportError) an optional dependency that is not installed
├── NotEnoughMemoryError     (also a MemoryError) work that needs more memory than available, refused before it starts
├── EngineError              (also a RuntimeError) a first-stage engine that failed or broke its contract
├── TrainingError            (also a RuntimeError) training went wrong; the best weights so far were kept
├── ClusterError             (also a RuntimeError) a cluster of workers that cannot be reached or used
└── ServerError              (also a RuntimeError) a server that failed, or that is not a railsearch server
    ├── ServerUnreachableError  (also a ConnectionError) no connection, or one that broke
    ├── ServerTimeoutError      (also a TimeoutError) no answer within the time that a call was given
    ├── ServerBusyError         too many requests, loading, or shutting down; try again later
    ├── AccessDeniedError       (also a PermissionError) a key that is missing or wrong, or may not do this
    └── NotServedError          (also a LookupError) the server has no such index, item or job
"""


class RailsearchError(Exception):
    """Base of every error that railsearch raises on purpose."""


class InvalidInputError(RailsearchError, ValueError):
    """An argument that cannot work; nothing was computed or changed."""


class NotEnoughItemsError(InvalidInputError):
    """A query has fewer items to choose from than the requested k."""


class IdExistsError(InvalidInputError):
    """An item was to be added, but the index has one with the same id; nothing was changed."""


class ModelFolderError(RailsearchError, ValueError):
    """A model folder that is missing, damaged or foreign."""


class FingerprintError(ModelFolderError):
    """The model is intact, but it is not the expected one."""


class IndexFolderError(RailsearchError, ValueError):
    """An index folder that is missing, damaged or foreign; its content is unchanged."""


class IndexLockedError(IndexFolderError):
    """Another writer is changing the index."""


class IndexRebuiltError(IndexFolderError):
    """Another index has since been built at the path of an open one."""


class ShardLostError(RailsearchError, RuntimeError):
    """A shard of a split index did not answer, after all retries; nothing was acknowledged."""


class DataFolderError(RailsearchError, ValueError):
    """A folder of prepared data that is missing, damaged or foreign."""


class JobFolderError(RailsearchError, ValueError):
    """The folder of a batch job that is damaged, in use or of another job; nothing was changed."""


class StorageError(RailsearchError, OSError):
    """The disk refused a write: it is full, read-only or failing, or permission is missing.

    The folder that was to be written is unchanged, or missing if it was new.
    """


class DownloadError(RailsearchError, OSError):
    """A download that failed, or that is not the expected file; nothing of it was kept."""


class MissingExtraError(RailsearchError, ImportError):
    """An optional dependency that is not installed."""


class NotEnoughMemoryError(RailsearchError, MemoryError):
    """Work that needs more memory than is available; nothing was computed or changed."""


class EngineError(RailsearchError, RuntimeError):
    """A first-stage engine that failed or broke its contract; the index itself is unchanged."""


class TrainingError(RailsearchError, RuntimeError):
    """Training went wrong; the best weights so far were kept."""


class ClusterError(RailsearchError, RuntimeError):
    """A cluster of workers that cannot be reached or used: no Ray, an old one, or no room; nothing was started."""


class ServerError(RailsearchError, RuntimeError):
    """A server that failed, that refused a request, or that is not a railsearch server."""


class ServerUnreachableError(ServerError, ConnectionError):
    """No connection to the server, or one that broke before the answer."""


class ServerTimeoutError(ServerError, TimeoutError):
    """No answer within the time that the call was given."""


class ServerBusyError(ServerError):
    """The server has too many requests, is loading or shuts down; the request was not executed."""


class AccessDeniedError(ServerError, PermissionError):
    """An API key that is missing or wrong, or that may not do this; or a server that is read-only."""


class NotServedError(ServerError, LookupError):
    """The server has no such index, item or job."""
