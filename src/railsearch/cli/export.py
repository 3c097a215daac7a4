"""`railsearch export`: the query side of a recommender as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.options import Json
from railsearch.cli.recommend import ModelFolder
from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.foundation.errors import InvalidInputError
from railsearch.loading import a_kind, load
from railsearch.recommender import Recommender


def export(
    model: ModelFolder,
    target: Annotated[Path, typer.Argument(help="The ONNX file to write, such as query.onnx.", show_default=False)],
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files of an earlier export.")] = False,
    as_json: Json = False,
) -> None:
    """Write the query side of a recommender as ONNX, so that a service in another language can make queries.

    The graph takes padded histories of item rows and their lengths, and returns query embeddings, which every index and
    server accepts, and query components with their gate. A JSON file beside it states the inputs and the row of each
    item id.

    Example: railsearch export runs/ml-1m/hstu-mol/model query.onnx
    """
    loaded = load(model)
    if not isinstance(loaded, Recommender):
        raise InvalidInputError(f"{model} holds {a_kind(loaded)}; give a recommender.")
    exported = loaded.export(target, overwrite=overwrite)
    if as_json:
        print_json(exported.to_dict())
        return
    rows: list[tuple[str, object]] = [("graph", exported.graph), ("contract", exported.contract)]
    rows += [(f"input {name}", f"int64 {shape}") for name, shape in exported.inputs.items()]
    rows += [(f"output {name}", f"fp32 {shape}") for name, shape in exported.outputs.items()]
    make_console().print(make_summary_table(rows))
