"""Text retrieval in one class: fit on questions and passages, evaluate, index, search, save and load."""

from railsearch.text_retriever.passages import PassagesLike
from railsearch.text_retriever.recipe import TextDataConfig, TextMixtureConfig, TextRecipe, read_training_data
from railsearch.text_retriever.retriever import TextRetriever

__all__ = [
    "PassagesLike",
    "TextDataConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextRetriever",
    "read_training_data",
]
