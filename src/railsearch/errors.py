"""Everything railsearch raises on purpose, in one tree.

RailsearchError
├── InvalidInputError        (also a ValueError) an argument that cannot work, refused before any work
│   └── NotEnoughItemsError  fewer items than the k that was asked for
├── ModelFolderError         (also a ValueError) a model folder that is absent, damaged or foreign
│   └── FingerprintError     the model is intact, but not the one that was expected
├── MissingExtraError        (also an ImportError) something optional is needed here and is not installed
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


class MissingExtraError(RailsearchError, ImportError):
    """Something optional is needed here and is not installed; the message says how to install it."""


class TrainingError(RailsearchError, RuntimeError):
    """Training went wrong; the best weights so far were kept."""
