"""The front door for text: fit on questions and passages, index passages, search them, save and load."""

from railsearch.text_retriever.folder import is_retriever_folder
from railsearch.text_retriever.recipe import (
    TextDataConfig,
    TextEncoderConfig,
    TextMixtureConfig,
    TextRecipe,
    read_recipe_data,
    read_text_recipe,
)
from railsearch.text_retriever.retriever import TextRetriever, load_for_index

__all__ = [
    "TextDataConfig",
    "TextEncoderConfig",
    "TextMixtureConfig",
    "TextRecipe",
    "TextRetriever",
    "is_retriever_folder",
    "load_for_index",
    "read_recipe_data",
    "read_text_recipe",
]
