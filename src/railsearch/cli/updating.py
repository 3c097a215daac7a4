"""The recipe of `railsearch train`: one that the user names, or that of the model to be updated."""

from collections.abc import Sequence
from pathlib import Path

from railsearch.cli.terminal import make_console, visible
from railsearch.foundation.errors import InvalidInputError
from railsearch.loading import a_kind, load
from railsearch.recipes import Recipe, TextRecipe, read_recipe, recipe_file, update_recipe
from railsearch.recommender import Recommender


def choose_recipe(
    recipe: Path | None, changes: Sequence[str], *, start: Path | None
) -> tuple[Recipe | TextRecipe, Path]:
    """Return the recipe with its changes, and the folder of the run if the user names none."""
    if recipe is not None:
        file = recipe_file(recipe).resolve()
        return read_recipe(recipe, changes), Path("runs") / file.parent.name / file.stem
    if start is None:
        raise InvalidInputError(
            "there is neither a recipe nor a model to update; give a recipe (`railsearch recipes list`), or a model "
            "folder with --from."
        )
    model = load(start)
    if not isinstance(model, Recommender):
        raise InvalidInputError(
            f"{start} holds {a_kind(model)}, and only a recommender can be updated without a recipe; give a recipe."
        )
    chosen = update_recipe(model.recipe).with_changes(changes)
    settings = chosen.training
    make_console(stderr=True).print(
        visible(
            f"update of {start} with its own recipe: training.epochs={settings.epochs}, "
            f"training.learning_rate={settings.learning_rate}; change them with --set"
        )
    )
    return chosen, Path("runs") / "updates" / model.fingerprint[:12]
