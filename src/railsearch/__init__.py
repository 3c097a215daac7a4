"""railsearch: retrieval with learned similarities, with a certificate of how good each answer is."""

from railsearch import data, evaluation
from railsearch.folders import load_similarity, save_similarity
from railsearch.foundation import metrics
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
from railsearch.foundation.results import Explanation, ItemBatch, SearchResult
from railsearch.index import Adaptive, Average, BruteForce, Combined, Faiss, Flat, Index, PerComponent, TwoPass
from railsearch.loading import load
from railsearch.recommender import HSTUConfig, Recipe, Recommender, SASRecConfig, read_recipe
from railsearch.similarity import (
    CosineConfig,
    DotProduct,
    MixtureConfig,
    MixtureOfLogits,
    decompose,
    fingerprint,
    load_balance_loss,
    register_similarity,
)
from railsearch.text_retriever import (
    TextDataConfig,
    TextEncoderConfig,
    TextMixtureConfig,
    TextRecipe,
    TextRetriever,
    read_text_recipe,
)
from railsearch.training import TextTrainingConfig, TrainingConfig, fit_similarity

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
    "TextDataConfig",
    "TextEncoderConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextRetriever",
    "TextTrainingConfig",
    "TrainingConfig",
    "TrainingError",
    "TwoPass",
    "data",
    "decompose",
    "evaluation",
    "fingerprint",
    "fit_similarity",
    "load",
    "load_balance_loss",
    "load_similarity",
    "metrics",
    "read_recipe",
    "read_text_recipe",
    "register_similarity",
    "save_similarity",
]
