"""railsearch: retrieval with learned similarities, with a certificate of how good each answer is."""

from railsearch import data, metrics
from railsearch.errors import (
    FingerprintError,
    InvalidInputError,
    ModelFolderError,
    NotEnoughItemsError,
    RailsearchError,
    TrainingError,
)
from railsearch.index import BruteForce, Index
from railsearch.similarity import (
    DotProduct,
    MixtureOfLogits,
    decompose,
    fingerprint,
    load_balance_loss,
    load_similarity,
    save_similarity,
)
from railsearch.training import fit_similarity
from railsearch.types import SearchResult

__version__ = "0.1.0"

__all__ = [
    "BruteForce",
    "DotProduct",
    "FingerprintError",
    "Index",
    "InvalidInputError",
    "MixtureOfLogits",
    "ModelFolderError",
    "NotEnoughItemsError",
    "RailsearchError",
    "SearchResult",
    "TrainingError",
    "data",
    "decompose",
    "fingerprint",
    "fit_similarity",
    "load_balance_loss",
    "load_similarity",
    "metrics",
    "save_similarity",
]
