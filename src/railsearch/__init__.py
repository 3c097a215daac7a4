"""railsearch: retrieval with learned similarities, with a certificate of how good each answer is."""

from railsearch import data, evaluation, metrics
from railsearch.errors import (
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
from railsearch.index import Adaptive, Average, BruteForce, Combined, Faiss, Flat, Index, PerComponent, TwoPass
from railsearch.recommender import (
    CosineConfig,
    HSTUConfig,
    MixtureConfig,
    Recipe,
    Recommender,
    SASRecConfig,
    read_recipe,
)
from railsearch.similarity import (
    DotProduct,
    MixtureOfLogits,
    decompose,
    fingerprint,
    load_balance_loss,
    load_similarity,
    save_similarity,
)
from railsearch.training import TrainingConfig, fit_similarity
from railsearch.types import Explanation, ItemBatch, SearchResult

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Average",
    "BruteForce",
    "Combined",
    "CosineConfig",
    "DataFolderError",
    "DotProduct",
    "DownloadError",
    "Explanation",
    "Faiss",
    "FingerprintError",
    "Flat",
    "HSTUConfig",
    "Index",
    "IndexFolderError",
    "IndexLockedError",
    "InvalidInputError",
    "ItemBatch",
    "MissingExtraError",
    "MixtureConfig",
    "MixtureOfLogits",
    "ModelFolderError",
    "NotEnoughItemsError",
    "PerComponent",
    "RailsearchError",
    "Recipe",
    "Recommender",
    "SASRecConfig",
    "SearchResult",
    "TrainingConfig",
    "TrainingError",
    "TwoPass",
    "data",
    "decompose",
    "evaluation",
    "fingerprint",
    "fit_similarity",
    "load_balance_loss",
    "load_similarity",
    "metrics",
    "read_recipe",
    "save_similarity",
]
