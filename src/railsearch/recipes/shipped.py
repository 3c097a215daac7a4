"""Recipes that come with railsearch, in folders by data set: list them, find one by name, and copy one to edit it."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from railsearch.foundation.errors import InvalidInputError, StorageError
from railsearch.foundation.files import new_file

FOLDER = Path(__file__).parent
SUFFIX = ".toml"
NUM_CLOSE_NAMES = 4


@dataclass(frozen=True, slots=True)
class ShippedRecipe:
    """A recipe that comes with railsearch, under a name such as "ml-1m/hstu-mol"."""

    name: str
    about: str
    """One sentence: the model and the data."""
    file: Path

    @property
    def text(self) -> str:
        """The recipe as TOML."""
        return self.file.read_text(encoding="utf-8")


def shipped_recipes() -> list[ShippedRecipe]:
    """Return all recipes that come with railsearch, sorted by name.

    >>> [recipe.name for recipe in shipped_recipes() if recipe.name.startswith("insuranceqa/")]
    ['insuranceqa/cosine', 'insuranceqa/merged', 'insuranceqa/mol', 'insuranceqa/mol-no-balance']
    """
    files = {_name_of(file): file for file in FOLDER.glob(f"*/*{SUFFIX}")}
    return [ShippedRecipe(name, _first_sentence(file), file) for name, file in sorted(files.items())]


def shipped_recipe(name: str) -> ShippedRecipe:
    """Return the recipe with a name; an error lists the names that are close to it.

    >>> shipped_recipe("ml-1m/hstu-mol").about
    "HSTU with a Mixture of Logits on MovieLens-1M, with the paper's hyperparameters"
    """
    found = {recipe.name: recipe for recipe in shipped_recipes()}
    if name not in found:
        raise InvalidInputError(f"there is no shipped recipe {name!r}; {_choices(name, list(found))}")
    return found[name]


def copy_recipe(name: str, target: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Copy a recipe that comes with railsearch to a file of your own, and return the path of that file.

    Args:
        name: the name of the recipe, such as "ml-1m/hstu-mol".
        target: a file to write, or an existing folder to write it into; by default the current folder.
        overwrite: replace the file if it exists.

    >>> import tempfile
    >>> copy_recipe("ml-1m/hstu-mol", tempfile.mkdtemp()).name
    'hstu-mol.toml'
    """
    recipe = shipped_recipe(name)
    path = Path() if target is None else Path(target)
    if path.is_dir():
        path /= recipe.file.name
    if path.is_dir() or (path.exists() and not overwrite):
        raise InvalidInputError(f"{path} already exists; choose another path or pass overwrite=True.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as written:
            written.write_bytes(recipe.file.read_bytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror or error}); nothing was changed.") from error
    return path


def recipe_file(recipe: str | Path) -> Path:
    """Return the TOML file of a recipe: a file at that path, or else the shipped recipe with that name.

    >>> recipe_file("ml-1m/sasrec").name
    'sasrec.toml'
    """
    path = Path(recipe)
    if path.is_file():
        return path
    found = {shipped.name: shipped.file for shipped in shipped_recipes()}
    if str(recipe) in found:
        return found[str(recipe)]
    if path.exists():
        return path  # a folder, say; the reader says what is wrong with it
    raise InvalidInputError(
        f"{recipe} is neither a file nor a shipped recipe; give a TOML file or a shipped name: "
        f"{_choices(str(recipe), list(found))}"
    )


def _name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def _choices(name: str, names: Sequence[str]) -> str:
    """Return advice for a name that does not exist: the names that are close to it, or all of them."""
    wanted = "/".join(Path(name).parts[-2:]).removesuffix(SUFFIX)
    own = [each for each in names if each.partition("/")[2] == wanted]
    close = own or difflib.get_close_matches(wanted, names, n=NUM_CLOSE_NAMES)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from: {', '.join(names)}."


def _first_sentence(file: Path) -> str:
    """Return the first sentence of the comment that opens a recipe."""
    comment = re.match(r"(?:#.*\n)*", file.read_text(encoding="utf-8"))
    text = " ".join(comment.group().replace("#", " ").split()) if comment else ""
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]
