"""The front door for text: fit on questions and passages, index passages, search them, save and load."""

from railsearch.text_retriever.recipe import (
    TextDataConfig,
    TextEncoderConfig,
    TextMixtureConfig,
    TextRecipe,
    read_text_recipe,
    read_training_data,
)
from railsearch.text_retriever.retriever import TextRetriever, load_for_index

__all__ = [
    "TextDataConfig",
    "TextEncoderConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextRetriever",
    "load_for_index",
    "read_text_recipe",
    "read_training_data",
]
