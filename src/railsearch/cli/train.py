"""`railsearch train`: train a recommender or a text retriever from a recipe; an interrupted run can be resumed."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.evaluate import print_metrics
from railsearch.cli.options import Json
from railsearch.cli.terminal import make_console, make_summary_table, print_json, visible
from railsearch.cli.updating import choose_recipe
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.targets import as_duration, as_size
from railsearch.recipes import DataConfig, Recipe, TextRecipe, dry_run, read_interactions_of, read_training_data
from railsearch.recommender import Recommender
from railsearch.text_retriever import TextRetriever
from railsearch.training.processes import Processes, joined_processes
from railsearch.training.run_folder import check_run_folder


def train(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            help="A recipe: a TOML file, or the name of one that comes with railsearch, such as ml-1m/sasrec "
            "(`railsearch recipes list`).",
            show_default="with --from, the recipe of that model with the settings of an update",
        ),
    ] = None,
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
        typer.Option(
            help="Folder of the run.",
            show_default="runs/, then the recipe's folder and name; without a recipe, runs/updates/ and the model's id",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A model folder to start from: update a recommender with new events, items and users, or continue a "
            "cosine as a mixture. The folder is not changed.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Train a recommender only on events later than this time: seconds, or a date such as 2000-12-01. "
            "Earlier events remain part of the histories.",
            show_default=False,
        ),
    ] = None,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="Download a language model by its name from the Hugging Face Hub.")
    ] = False,
    is_dry: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Estimate time, memory and disk space of a recommender's run from a few steps; write nothing.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a recommender or a text retriever from a recipe, measure it on test data, and save it.

    The run folder contains checkpoints, log.jsonl with one line for each epoch, and at the end model/, which
    `Recommender.load` or `TextRetriever.load` reads. A recipe whose encoder has kind "text" trains a text retriever.
    Progress goes to standard error: a bar on a terminal, otherwise a line for each epoch, and
    each minute of a long one.

    With --from, training starts with the weights of another model, and the start is kept if no epoch is better. Use it
    to update a recommender with new events: its items keep their rows, new items and users get new ones, and
    --since trains only on the new events. Or train a cosine first, then continue it as a mixture.

    With --dry-run, a few steps show how long the run will take; nothing is written.

    Run the same command again to resume an interrupted run, or with more epochs to continue a finished one. To train
    with several processes, use torchrun: torchrun --nproc-per-node 2 -m railsearch train ...

    Example: railsearch train ml-1m/hstu-mol --set training.epochs=5

    Example: railsearch train cpu/sasrec-mol --data data/ml-1m --dry-run

    Example: railsearch train --from runs/ml-1m/hstu-mol/model --data data/week-2 --since 2000-12-01
    """
    chosen, default_folder = choose_recipe(recipe, changes or [], start=start)
    folder = out or default_folder
    if since is not None and isinstance(chosen, TextRecipe):
        raise InvalidInputError("--since is for recommenders, but the recipe is for a text retriever; omit it.")
    check_run_folder(folder)
    if data is not None and isinstance(chosen, Recipe):  # the model states the data that it was trained on
        chosen = chosen.model_copy(update={"data": DataConfig(folder=str(data))})
    if is_dry:
        _print_estimate(chosen, data, folder, start, since, as_json=as_json)
        return
    with joined_processes() as processes:
        fitted = (
            _train_text(chosen, data, folder, start, processes=processes, allow_download=allow_download)
            if isinstance(chosen, TextRecipe)
            else _train_recommender(chosen, data, folder, start, since, processes=processes)
        )
        is_first = processes.is_first
    if not is_first:
        return
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


def _print_estimate(
    recipe: Recipe | TextRecipe,
    data: Path | None,
    folder: Path,
    start: Path | None,
    since: str | None,
    *,
    as_json: bool,
) -> None:
    if isinstance(recipe, TextRecipe):
        raise InvalidInputError("--dry-run is for recommenders, but the recipe is for a text retriever; omit it.")
    trained = None if start is None else Recommender.load(start)
    found = dry_run(read_interactions_of(recipe, data), recipe, start=trained, since=since, folder=folder)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    epochs = [("an epoch", as_duration(found.seconds_per_epoch))]
    if found.cosine_seconds_per_epoch is not None:
        first = f"an epoch as a cosine (the first {found.cosine_epochs})"
        epochs = [(first, as_duration(found.cosine_seconds_per_epoch)), ("an epoch as a mixture", epochs[0][1])]
    rows = [
        *epochs[: 1 if found.cosine_epochs == found.epochs else None],
        ("a validation", as_duration(found.validation_seconds)),
        (f"all {found.epochs} epochs", as_duration(found.total_seconds)),
        ("weights", f"{found.num_weights:,}"),
        ("peak memory", as_size(found.peak_memory_bytes)),
        ("checkpoints on disk, at most", as_size(found.disk_bytes)),
    ]
    make_console().print(make_summary_table(rows))


def _train_recommender(
    recipe: Recipe, data: Path | None, folder: Path, start: Path | None, since: str | None, *, processes: Processes
) -> Recommender:
    return Recommender.fit(
        read_interactions_of(recipe, data),
        recipe,
        start=None if start is None else Recommender.load(start),
        since=since,
        folder=folder,
        save_to=folder / "model",
        overwrite=True,
        processes=processes,
    )


def _train_text(
    recipe: TextRecipe,
    data: Path | None,
    folder: Path,
    start: Path | None,
    *,
    processes: Processes,
    allow_download: bool,
) -> TextRetriever:
    return TextRetriever.fit(
        read_training_data(recipe, data),
        recipe,
        start=None if start is None else TextRetriever.load(start),
        folder=folder,
        save_to=folder / "model",
        overwrite=True,
        processes=processes,
        allow_download=allow_download,
    )
