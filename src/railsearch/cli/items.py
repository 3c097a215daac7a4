"""`railsearch items`: add items to a trained recommender, and to its index."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.options import Json
from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.data.table_files import read_table
from railsearch.recommender import Recommender

app = typer.Typer(
    name="items",
    help="Add items to a trained recommender that reads item features (encoder.item_features in its recipe).",
    no_args_is_help=True,
)


@app.callback()
def _items() -> None:
    """Add items to a trained recommender that reads item features (encoder.item_features in its recipe)."""


@app.command()
def add(
    model: Annotated[
        Path, typer.Argument(help="The model folder of a recommender; it is replaced.", show_default=False)
    ],
    *,
    items: Annotated[
        Path,
        typer.Option(
            help="A Parquet or Arrow table of new items: ids in the column `item`, the features in the same column as "
            "in training, and the other columns that the items of the model have.",
            show_default=False,
        ),
    ],
    index: Annotated[
        Path | None,
        typer.Option(help="An index that the model built; it gets the items too.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add items that were not there in training, so that they are recommended at once.

    A new item is embedded by its features. All other items keep their embeddings, so an index that the model built
    before stays valid; with --index it gets the new items in one commit.

    If the command is killed, model and index still work together. Run the same command again to complete it.

    Example: railsearch items add runs/shop/model --items new.parquet --index shop.index
    """
    recommender = Recommender.load(model)
    if index is not None:
        # Without the warning of `Recommender.open_index`: items that the index lacks are added now.
        recommender.index = recommender.source.open_index(index, version=None, engine=None)
    added = recommender.add_items(read_table(items), show_progress=False if as_json else None)
    if as_json:
        print_json({"model": str(model), "index": None if index is None else str(index), **dataclasses.asdict(added)})
        return
    rows = [("model", model), ("added items", f"{added.num_added:,}"), ("items now", f"{added.num_items:,}")]
    if index is not None:
        rows += [("index", index), ("added to the index", f"{added.num_indexed:,}"), ("version", added.index_version)]
    make_console().print(make_summary_table(rows))
