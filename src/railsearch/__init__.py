"""railsearch: retrieval with learned similarities, with a certificate of how good each answer is.

The names here are enough for most programs. The rest is in `railsearch.errors`, `railsearch.recipes` (settings of
models and training), `railsearch.data`, `railsearch.encoders`, `railsearch.engines` (FAISS, Milvus and PostgreSQL as
first stages), `railsearch.models`, `railsearch.similarity` (the contract of a similarity), `railsearch.baselines`,
`railsearch.evaluation`, `railsearch.benchmark`, `railsearch.client` (searches over HTTP), `railsearch.distributed`
(indexes that are split into shards, batch jobs) and `railsearch.testing`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from railsearch import (
        baselines,
        benchmark,
        client,
        data,
        distributed,
        encoders,
        engines,
        errors,
        evaluation,
        models,
        recipes,
        similarity,
        testing,
    )
    from railsearch.comparison import compare
    from railsearch.errors import RailsearchError
    from railsearch.evaluation import evaluate
    from railsearch.folders import load_similarity, save_similarity
    from railsearch.foundation.results import Explanation, ItemBatch, SearchResult
    from railsearch.index import (
        Adaptive,
        Average,
        BruteForce,
        Combined,
        Faiss,
        Flat,
        Index,
        PerComponent,
        TwoPass,
        Weighted,
    )
    from railsearch.loading import load
    from railsearch.recipes import Recipe, TextRecipe, read_recipe
    from railsearch.recommender import MaxPer, Recommender
    from railsearch.similarity import DotProduct, MixtureOfLogits, fingerprint, register_similarity, widen
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
    "MaxPer",
    "MixtureOfLogits",
    "PerComponent",
    "RailsearchError",
    "Recipe",
    "Recommender",
    "SearchResult",
    "TextRecipe",
    "TextRetriever",
    "TwoPass",
    "Weighted",
    "baselines",
    "benchmark",
    "client",
    "compare",
    "data",
    "distributed",
    "encoders",
    "engines",
    "errors",
    "evaluate",
    "evaluation",
    "fingerprint",
    "fit_similarity",
    "load",
    "load_similarity",
    "models",
    "read_recipe",
    "recipes",
    "register_similarity",
    "save_similarity",
    "similarity",
    "testing",
    "widen",
]

_NAMES = {
    "comparison": ("compare",),
    "errors": ("RailsearchError",),
    "evaluation": ("evaluate",),
    "folders": ("load_similarity", "save_similarity"),
    "foundation.results": ("Explanation", "ItemBatch", "SearchResult"),
    "index": (
        "Adaptive", "Average", "BruteForce", "Combined", "Faiss", "Flat", "Index", "PerComponent", "TwoPass",
        "Weighted",
    ),
    "loading": ("load",),
    "recipes": ("Recipe", "TextRecipe", "read_recipe"),
    "recommender": ("MaxPer", "Recommender"),
    "similarity": ("DotProduct", "MixtureOfLogits", "fingerprint", "register_similarity", "widen"),
    "text_retriever": ("TextRetriever",),
    "training": ("fit_similarity",),
}  # fmt: skip
"""Module of each name. A name is imported when it is first used, so that `import railsearch` takes no time."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers see the imports above

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _MODULES:
            value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        else:
            value = importlib.import_module(f"{__name__}.{name}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
