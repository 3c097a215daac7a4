"""Read a recipe of any kind, from a file or by the name of a shipped one; the encoder decides which class it is."""

from collections.abc import Iterable
from pathlib import Path

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.settings import read_settings
from railsearch.recipes.shipped import recipe_file
from railsearch.recommender import Recipe
from railsearch.text_retriever import TextRecipe

ENCODERS = ("sasrec", "hstu", "text")


def read_recipe(file: str | Path, changes: Iterable[str] = ()) -> Recipe | TextRecipe:
    """Read a recipe of a recommender or a text retriever; the kind of its encoder decides which.

    Args:
        file: a TOML file, or the name of a recipe that comes with railsearch, such as "ml-1m/hstu-mol"; if both exist,
            the file is read. Unknown settings are refused.
        changes: single settings that replace those of the file, such as "training.epochs=5"; without a value, such as
            "training.patience=", the setting is omitted.

    >>> read_recipe("ml-1m/hstu-mol", ["training.epochs=5"]).training.epochs
    5
    >>> import tempfile
    >>> own = Path(tempfile.mkdtemp()) / "recipe.toml"
    >>> _ = own.write_text('[encoder]\\nkind = "text"\\nbase = "models/minilm"')
    >>> read_recipe(own, ["encoder.pooling=parameterised"]).encoder.pooling.value
    'parameterised'
    """
    file, changes = recipe_file(file), list(changes)
    encoder = read_settings(file, changes).get("encoder", {})
    if not isinstance(encoder, dict):
        raise InvalidInputError(f"{file}: encoder is {encoder!r}; make it a section, [encoder].")
    kind = encoder.get("kind", "text" if "base" in encoder else "sasrec")
    if kind not in ENCODERS:
        raise InvalidInputError(f"{file}: encoder.kind is {kind!r}; choose from: {', '.join(ENCODERS)}.")
    return TextRecipe.read(file, changes) if kind == "text" else Recipe.read(file, changes)
