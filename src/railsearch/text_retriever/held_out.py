"""Test questions that a text retriever was certainly not trained on."""

from pathlib import Path

from railsearch.data import PassageLayout, QuestionPassages, is_beir, read_passages
from railsearch.folders import ModelCard
from railsearch.foundation.errors import InvalidInputError
from railsearch.text_retriever.card import questions_digest
from railsearch.text_retriever.recipe import TextRecipe, read_split_data


def read_test_data(recipe: TextRecipe, card: ModelCard | None, path: str | Path) -> QuestionPassages:
    """Read data with test questions; see `TextRetriever.test_data`.

    Args:
        recipe: states the layout of the data, and how questions are held out.
        card: states the questions that were held out when the model was trained; None if it was not trained.
        path: the data.
    """
    whole = read_passages(path, PassageLayout.BEIR if is_beir(path) else recipe.data.layout)
    if whole.test is not None:
        return whole
    split = read_split_data(recipe, path)
    if split.test is None or card is None or card.tested_on != questions_digest(split.test):
        raise InvalidInputError(
            f"{path} holds out no test questions, and those that the recipe would hold out were not held out when "
            "this model was trained, so that it may have been trained on them; give data with a test split."
        )
    return split
