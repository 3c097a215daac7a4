"""`railsearch train`: from a recipe to a model folder, resumable at any moment."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from railsearch.cli.options import Json
from railsearch.cli.recommend import print_metrics
from railsearch.data import read_prepared
from railsearch.errors import InvalidInputError
from railsearch.recommender import Recommender, read_recipe
from railsearch.training.processes import joined_processes


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/ml-1m/sasrec.toml.", show_default=False)],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change one setting of the recipe: section.setting=value; no value leaves it out. May be repeated.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The prepared data, in place of the recipe's data.folder.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the run.", show_default="runs/, and the recipe's folder and name"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a recommender by a recipe, measure it on the test items, and save it.

    The folder of the run gets checkpoints, log.jsonl with one line an epoch, and in the end model/, which
    `Recommender.load` reads. The same command goes on with a run that was cut short; with more epochs, with one that
    was done. Several processes train together with torchrun: torchrun --nproc-per-node 2 -m railsearch train ...

    Example: railsearch train recipes/ml-1m/hstu-mol.toml --set training.epochs=5
    """
    chosen = read_recipe(recipe, changes or ())
    source = data or (None if chosen.data.folder is None else Path(chosen.data.folder))
    if source is None:
        raise InvalidInputError(f"{recipe} names no data; pass --data with what `railsearch data prepare` wrote.")
    folder = out or Path("runs") / recipe.resolve().parent.name / recipe.stem
    interactions = read_prepared(source)
    with joined_processes() as processes:
        recommender = Recommender.fit(
            interactions, chosen, folder=folder, processes=processes, show_progress=False if as_json else None
        )
        if not processes.is_first:
            return
    recommender.save(folder / "model", overwrite=True)
    card = recommender.card
    if as_json:
        print(json.dumps({**dataclasses.asdict(card), "model": str(folder / "model")}, indent=2))
        return
    console = Console(markup=False, soft_wrap=True)
    print_metrics(card.metrics, card.protocol, console)
    console.print(f"epoch {card.best_epoch} of {card.num_epochs}, picked by {card.picked_by}", highlight=False)
    console.print(f"saved: {folder / 'model'}", highlight=False)
