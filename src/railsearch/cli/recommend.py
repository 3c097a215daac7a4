"""`railsearch recommend` and `railsearch evaluate`: what a trained model gives, and how good it is."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from polars import DataFrame
from rich.console import Console
from rich.table import Table
from rich.text import Text

from railsearch.cli.options import Json
from railsearch.data import leave_last_out, read_prepared
from railsearch.folders import format_of
from railsearch.foundation.errors import InvalidInputError
from railsearch.recommender import Recommender
from railsearch.text_retriever import TextRetriever

ModelFolder = Annotated[
    Path, typer.Argument(help="A model folder, such as runs/ml-1m/hstu-mol/model.", show_default=False)
]


def recommend(
    model: ModelFolder,
    *,
    history: Annotated[
        list[str] | None,
        typer.Option(help="Ids of items, oldest first, with commas between them. May be repeated.", show_default=False),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(help="Ids of users whose histories are in --data, with commas.", show_default=False),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Prepared data, for --users.", show_default=False)] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Items for each.", min=1)] = 10,
    keep_viewed: Annotated[bool, typer.Option("--keep-viewed", help="Recommend items of the history as well.")] = False,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Pass over items that the model does not know.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Recommend what comes next, to users or after histories; nobody needs to have been there in training.

    Example: railsearch recommend runs/ml-1m/hstu-mol/model --history 1,260,1196 -k 5
    """
    if users is not None and data is None:
        raise InvalidInputError("--users was given without --data; pass the prepared data that holds their histories.")
    recommender = Recommender.load(model, interactions=None if data is None else read_prepared(data))
    found = recommender.recommend(
        None if users is None else _ids(users),
        k,
        histories=[_ids(own) for own in history] if history else None,
        filter_viewed=not keep_viewed,
        unknown_items="ignore" if ignore_unknown else "refuse",
    )
    table = found.join(recommender.items, on="item", how="left", maintain_order="left")
    if as_json:
        print(json.dumps({"model": str(model), "recommendations": json.loads(table.write_json())}, indent=2))
    else:
        Console(markup=False, soft_wrap=True).print(_as_text(table))


def evaluate(
    model: ModelFolder,
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Prepared data with the items of a recommender; for a text model, data in the layout of its recipe.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Measure a trained model on what is held out for the test, and print the protocol with it.

    A recommender ranks each user's last item among all items: HR, NDCG and MRR. A text model ranks the right passages
    of each test question among all passages: HR and MRR.

    Example: railsearch evaluate runs/ml-1m/hstu-mol/model --data data/ml-1m
    """
    if format_of(model) == "railsearch.text_retriever":
        retriever = TextRetriever.load(model)
        evaluation = retriever.evaluate(retriever.test_data(data), show_progress=False if as_json else None)
    else:
        recommender = Recommender.load(model)
        split = leave_last_out(read_prepared(data), has_validation=recommender.recipe.split.has_validation)
        evaluation = recommender.evaluate(split)
    if as_json:
        print(json.dumps({"model": str(model), **dataclasses.asdict(evaluation)}, indent=2))
        return
    print_metrics(evaluation.metrics, evaluation.protocol, Console(markup=False, soft_wrap=True))


def print_metrics(metrics: dict[str, float], protocol: str, console: Console) -> None:
    """Figures of the test, never without the protocol that they were measured by."""
    table = Table("metric", "test", box=None)
    for name, value in metrics.items():
        table.add_row(name, f"{value:.4f}")
    console.print(table)
    console.print(f"protocol: {protocol}", highlight=False)


def _ids(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _as_text(table: DataFrame) -> Table:
    text = Table(box=None)
    for name in table.columns:
        text.add_column(name, justify="right" if name in {"rank", "score"} else "left")
    for values in table.iter_rows():
        text.add_row(*(Text(f"{value:.4f}" if isinstance(value, float) else str(value)) for value in values))
    return text
