"""`railsearch recipes`: list the recipes that come with railsearch, show one, and copy one to edit it."""

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.options import Json
from railsearch.cli.terminal import make_console, make_summary_table, print_json, visible
from railsearch.recipes import copy_recipe, shipped_recipe, shipped_recipes

app = typer.Typer(
    name="recipes",
    help="Recipes that come with railsearch: settings of the paper's models, ready for `railsearch train`.",
    no_args_is_help=True,
)
RecipeName = Annotated[str, typer.Argument(help="The name of a recipe, such as ml-1m/hstu-mol.", show_default=False)]


@app.command(name="list")
def list_recipes(as_json: Json = False) -> None:
    """List the recipes that come with railsearch, with a sentence about each.

    Example: railsearch recipes list
    """
    recipes = shipped_recipes()
    if as_json:
        print_json({"recipes": [{"name": recipe.name, "about": recipe.about} for recipe in recipes]})
        return
    make_console(wraps=True).print(make_summary_table((recipe.name, recipe.about) for recipe in recipes))


@app.command()
def show(name: RecipeName, as_json: Json = False) -> None:
    """Print a recipe as TOML; with --json, its settings.

    Example: railsearch recipes show ml-1m/hstu-mol
    """
    recipe = shipped_recipe(name)
    if as_json:
        print_json({"name": recipe.name, "about": recipe.about, "settings": tomllib.loads(recipe.text)})
        return
    print(recipe.text, end="")


@app.command()
def copy(
    name: RecipeName,
    target: Annotated[
        Path | None,
        typer.Argument(
            help="File to write, or an existing folder to write it into. By default the current folder.",
            show_default=False,
        ),
    ] = None,
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Copy a recipe to a file of your own, to edit it and train with it.

    For a change of a few settings no copy is needed: use `railsearch train NAME --set section.setting=value`.

    Example: railsearch recipes copy ml-1m/hstu-mol my-recipe.toml
    """
    file = copy_recipe(name, target, overwrite=overwrite)
    if as_json:
        print_json({"name": name, "file": str(file)})
        return
    make_console().print(visible(f"copied: {file}"))
