"""railsearch: retrieval with learned similarities, with a certificate of how good each answer is.

The names here are enough for most programs. The rest is in `railsearch.errors`, `railsearch.recipes` (settings of
models and training), `railsearch.data`, `railsearch.encoders`, `railsearch.similarity` (the contract of a similarity),
`railsearch.evaluation`, `railsearch.benchmark` and `railsearch.testing`.
"""

from railsearch import benchmark, data, encoders, errors, evaluation, recipes
from railsearch.errors import RailsearchError
from railsearch.folders import load_similarity, save_similarity
from railsearch.foundation.results import Explanation, ItemBatch, SearchResult
from railsearch.index import Adaptive, Average, BruteForce, Combined, Faiss, Flat, Index, PerComponent, TwoPass
from railsearch.loading import load
from railsearch.recipes import Recipe, TextRecipe, read_recipe
from railsearch.recommender import Recommender
from railsearch.similarity import DotProduct, MixtureOfLogits, fingerprint, register_similarity
from railsearch.text_retriever import TextRetriever
from railsearch.training import fit_similarity

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Average",
    "BruteForce",
    "Combined",
    "DotProduct",
    "Explanation",
    "Faiss",
    "Flat",
    "Index",
    "ItemBatch",
    "MixtureOfLogits",
    "PerComponent",
    "RailsearchError",
    "Recipe",
    "Recommender",
    "SearchResult",
    "TextRecipe",
    "TextRetriever",
    "TwoPass",
    "benchmark",
    "data",
    "encoders",
    "errors",
    "evaluation",
    "fingerprint",
    "fit_similarity",
    "load",
    "load_similarity",
    "read_recipe",
    "recipes",
    "register_similarity",
    "save_similarity",
]
