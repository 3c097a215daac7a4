"""Training that starts with another retriever: its weights, and the settings of its encoder."""

import copy

from railsearch.encoders import Pooling, TextEncoder, TextEncoderConfig, TokenPlace
from railsearch.encoders.text.settings import LATE_POOLINGS
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import TextModel
from railsearch.similarity import DotProduct, is_continued
from railsearch.text_retriever.recipe import TextRecipe, build_text_similarity

OWN_SETTINGS = {"kind", "base", "seed"}
"""Settings of an encoder that matter only when it is built from its base."""
POOLED_AGAIN = {"pooling", "num_query_components", "num_item_components", "first_spread", "window_components"}
"""Settings that are the recipe's if the outputs of the start are pooled again."""


def continue_recipe(recipe: TextRecipe, start: TextModel) -> TextRecipe:
    """Return a recipe for training a start further: settings of the encoder that it leaves open are those of the start.

    A stated setting that differs from the start's is refused, unless the outputs of the start are pooled again.
    """
    ours, theirs = recipe.encoder, TextEncoderConfig.model_validate(start.encoder.settings)
    is_repooled = _is_repooled(recipe, start.encoder)
    own = OWN_SETTINGS | POOLED_AGAIN if is_repooled else OWN_SETTINGS
    kept = {name: getattr(theirs, name) for name in TextEncoderConfig.model_fields if name not in own}
    for name, value in list(kept.items()):
        stated = getattr(ours, name)
        is_open = name not in ours.model_fields_set or (stated, value) == (Pooling.OWN, Pooling.MEAN)
        if is_repooled and not is_open:
            del kept[name]
        elif stated != value and not is_open:
            raise InvalidInputError(
                f"{name} is {_shown(stated)} in the recipe but {_shown(value)} in the start, and training further does "
                "not change it; use the value of the start, or train without a start."
            )
    return recipe.model_copy(update={"encoder": TextEncoderConfig.model_validate({**ours.model_dump(), **kept})})


def continue_model(start: TextModel, recipe: TextRecipe) -> TextModel:
    """Return a copy of a trained model to train further; after a cosine, the similarity is the recipe's.

    That is a mixture over the same embedding, or over components that are pooled from the outputs of the same language
    model. With `first_spread=0`, these begin as that embedding.
    """
    if start.encoder.has_windows != (recipe.encoder.pooling is Pooling.WINDOWS):
        raise InvalidInputError(
            f"the start has pooling {start.encoder.pooling} but the recipe {recipe.encoder.pooling}, and a model that "
            "was trained keeps its windows, or has none; use the pooling of the start, or train without a start."
        )
    similarity = build_text_similarity(recipe, dim=start.encoder.dim)
    if isinstance(start.similarity, DotProduct):
        if recipe.derives_components:
            return TextModel(encoder=copy.deepcopy(start.encoder), similarity=similarity).train(False)
        if start.encoder.head is None and _is_repooled(recipe, start.encoder):
            return TextModel(encoder=start.encoder.repooled(recipe.encoder), similarity=similarity).train(False)
    if not is_continued(similarity, start.similarity):
        raise InvalidInputError(
            f"the start has {start.similarity} but the recipe {similarity}; use the similarity and the components of "
            "the start, or a mixture over one embedding for each text after a cosine."
        )
    return copy.deepcopy(start)


def _is_repooled(recipe: TextRecipe, start: TextEncoder | TextEncoderConfig) -> bool:
    """Return whether a recipe makes several components of the outputs of a model that had one embedding for a text."""
    counts = (recipe.encoder.num_query_components, recipe.encoder.num_item_components)
    had_one = (start.num_query_components, start.num_item_components) == (1, 1)
    return had_one and counts != (1, 1) and recipe.encoder.pooling in {*LATE_POOLINGS, Pooling.WINDOWS}


def _shown(value: object) -> str:
    return value.value if isinstance(value, Pooling | TokenPlace) else repr(value)
