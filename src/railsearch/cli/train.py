"""`railsearch train`: from a recipe to a model folder, resumable at any moment; recommenders and text retrievers."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from railsearch.cli.options import Json
from railsearch.cli.recommend import print_metrics
from railsearch.data import read_prepared
from railsearch.folders import check_target
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.settings import read_settings
from railsearch.recommender import Recommender, read_recipe
from railsearch.recommender import folder as recommender_folder
from railsearch.text_retriever import TextRetriever, read_text_recipe, read_training_data
from railsearch.text_retriever import folder as retriever_folder
from railsearch.training.processes import joined_processes

ENCODERS = ("sasrec", "hstu", "text")


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/ml-1m/sasrec.toml.", show_default=False)],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change one setting of the recipe: section.setting=value; no value leaves it out. May be repeated.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data, in place of the recipe's data.folder (recommenders: what data prepare wrote) or data.path "
            "(text).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the run.", show_default="runs/, and the recipe's folder and name"),
    ] = None,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="Fetch a language model by its name from the Hugging Face Hub.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a recommender or a text retriever by a recipe, measure it on what is held out for the test, and save it.

    The folder of the run gets checkpoints, log.jsonl with one line an epoch, and in the end model/, which
    `Recommender.load` or `TextRetriever.load` reads. A recipe whose encoder is of kind "text" is one of text.

    The same command goes on with a run that was cut short; with more epochs, with one that was done. Several processes
    train together with torchrun: torchrun --nproc-per-node 2 -m railsearch train ...

    Example: railsearch train recipes/ml-1m/hstu-mol.toml --set training.epochs=5
    """
    folder = out or Path("runs") / recipe.resolve().parent.name / recipe.stem
    fitted: Recommender | TextRetriever | None
    if _is_text(recipe, changes or []):
        fitted = _train_text(recipe, changes or [], data, folder, as_json, allow_download=allow_download)
    else:
        fitted = _train_recommender(recipe, changes or [], data, folder, as_json)
    if fitted is None:
        return
    fitted.save(folder / "model", overwrite=True)
    card = fitted.card
    assert card is not None
    if as_json:
        print(json.dumps({**dataclasses.asdict(card), "model": str(folder / "model")}, indent=2))
        return
    console = Console(markup=False, soft_wrap=True)
    if card.metrics:
        print_metrics(card.metrics, card.protocol, console)
    console.print(f"epoch {card.best_epoch} of {card.num_epochs}, picked by {card.picked_by}", highlight=False)
    console.print(f"saved: {folder / 'model'}", highlight=False)


def _is_text(recipe: Path, changes: list[str]) -> bool:
    """Whether a recipe is one of text: its encoder says so, or has a base, which only those of text have."""
    encoder = read_settings(recipe, changes).get("encoder", {})
    if not isinstance(encoder, dict):
        raise InvalidInputError(f"{recipe}: encoder is {encoder!r}; make it a section, [encoder].")
    kind = encoder.get("kind", "text" if "base" in encoder else "sasrec")
    if kind not in ENCODERS:
        raise InvalidInputError(f"{recipe}: encoder.kind is {kind!r}; choose from: {', '.join(ENCODERS)}.")
    return bool(kind == "text")


def _train_recommender(
    recipe: Path, changes: list[str], data: Path | None, folder: Path, as_json: bool
) -> Recommender | None:
    """The recommender in the first process; None in the others."""
    chosen = read_recipe(recipe, changes)
    source = data or (None if chosen.data.folder is None else Path(chosen.data.folder))
    if source is None:
        raise InvalidInputError(f"{recipe} names no data; pass --data with what `railsearch data prepare` wrote.")
    check_target(recommender_folder.FORMAT, folder / "model", overwrite=True)
    interactions = read_prepared(source)
    with joined_processes() as processes:
        recommender = Recommender.fit(
            interactions, chosen, folder=folder, processes=processes, show_progress=False if as_json else None
        )
        return recommender if processes.is_first else None


def _train_text(
    recipe: Path, changes: list[str], data: Path | None, folder: Path, as_json: bool, *, allow_download: bool
) -> TextRetriever | None:
    """The retriever in the first process; None in the others."""
    chosen = read_text_recipe(recipe, changes)
    check_target(retriever_folder.FORMAT, folder / "model", overwrite=True)
    collection = read_training_data(chosen, data)
    retriever = TextRetriever.from_recipe(chosen, allow_download=allow_download)
    with joined_processes() as processes:
        retriever.fit(collection, folder=folder, processes=processes, show_progress=False if as_json else None)
        return retriever if processes.is_first else None
