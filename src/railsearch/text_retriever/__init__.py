"""The front door for text: fit on questions and passages, index passages, search them, save and load."""

from railsearch.text_retriever.recipe import (
    TextDataConfig,
    TextEncoderConfig,
    TextMixtureConfig,
    TextRecipe,
    read_recipe_data,
    read_text_recipe,
)
from railsearch.text_retriever.retriever import TextRetriever

__all__ = [
    "TextDataConfig",
    "TextEncoderConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextRetriever",
    "read_recipe_data",
    "read_text_recipe",
]
