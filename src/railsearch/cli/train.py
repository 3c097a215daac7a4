"""`railsearch train`: train a recommender or a text retriever from a recipe; an interrupted run can be resumed."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.options import Json
from railsearch.cli.recommend import print_metrics
from railsearch.cli.terminal import make_console, print_json, visible
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
            help="Change one setting of the recipe: section.setting=value. Without a value, the setting is removed. "
            "May be repeated.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Training data; replaces the recipe's data.folder (recommender: written by data prepare) or data.path "
            "(text).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run.", show_default="runs/, then the recipe's folder and name"),
    ] = None,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="Download a language model by its name from the Hugging Face Hub.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a recommender or a text retriever from a recipe, measure it on test data, and save it.

    The run folder contains checkpoints, log.jsonl with one line for each epoch, and at the end model/, which
    `Recommender.load` or `TextRetriever.load` reads. A recipe whose encoder has kind "text" trains a text retriever.

    Run the same command again to resume an interrupted run, or with more epochs to continue a finished one. To train
    with several processes, use torchrun: torchrun --nproc-per-node 2 -m railsearch train ...

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
        print_json({**dataclasses.asdict(card), "model": str(folder / "model")})
        return
    console = make_console()
    if card.metrics:
        print_metrics(card.metrics, card.protocol, console)
    console.print(visible(f"epoch {card.best_epoch} of {card.num_epochs}, picked by {card.picked_by}"))
    console.print(visible(f"saved: {folder / 'model'}"))


def _is_text(recipe: Path, changes: list[str]) -> bool:
    """Return whether a recipe trains a text retriever: its encoder has kind text, or a base, which only text has."""
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
    """Return the recommender in the first process, and None in the others."""
    chosen = read_recipe(recipe, changes)
    source = data or (None if chosen.data.folder is None else Path(chosen.data.folder))
    if source is None:
        raise InvalidInputError(
            f"{recipe} names no data; add --data with a folder that `railsearch data prepare` wrote."
        )
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
    """Return the retriever in the first process, and None in the others."""
    chosen = read_text_recipe(recipe, changes)
    check_target(retriever_folder.FORMAT, folder / "model", overwrite=True)
    passages = read_training_data(chosen, data)
    retriever = TextRetriever.from_recipe(chosen, allow_download=allow_download)
    with joined_processes() as processes:
        retriever.fit(passages, folder=folder, processes=processes, show_progress=False if as_json else None)
        return retriever if processes.is_first else None
