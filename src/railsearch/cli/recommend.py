"""`railsearch recommend`: the recommendations of a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.batch import check_no_batch, print_report
from railsearch.cli.options import (
    Diversity,
    EngineText,
    ExcludedItems,
    Json,
    MaxPerTexts,
    OnRay,
    OutputFolder,
    Pool,
    RayAddress,
    RowsPerPart,
    StrategyText,
    chosen_engine,
    chosen_limits,
    chosen_runner,
    chosen_strategy,
    ids_of,
)
from railsearch.cli.terminal import make_console, make_frame_table, print_json
from railsearch.data import read_prepared
from railsearch.distributed.batch import recommend_all
from railsearch.distributed.batch.job import ROWS_PER_PART
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import rows_as_json
from railsearch.recommender import ColdStart, Recommender

ModelFolder = Annotated[
    Path, typer.Argument(help="A model folder, such as runs/ml-1m/hstu-mol/model.", show_default=False)
]


def recommend(
    model: ModelFolder,
    *,
    history: Annotated[
        list[str] | None,
        typer.Option(help="Item ids, oldest first, separated by commas. May be repeated.", show_default=False),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(help="User ids, separated by commas; their histories are read from --data.", show_default=False),
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="All users of --data; the recommendations go to --output.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Prepared data with the histories of the users.", show_default=False)
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Items to recommend for each user or history.", min=1)] = 10,
    keep_viewed: Annotated[
        bool, typer.Option("--keep-viewed", help="Also recommend items that are in the history.")
    ] = False,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Ignore items in the history that the model does not know.")
    ] = False,
    cold_start: Annotated[
        ColdStart,
        typer.Option(
            help="Users without a history, and histories without known items: refuse them, or recommend popular items."
        ),
    ] = ColdStart.REFUSE,
    index: Annotated[
        Path | None,
        typer.Option(help="Index of the model's items, built by index build --model.", show_default=False),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(help='Only items whose columns meet this condition: "year >= 1990".', show_default=False),
    ] = None,
    exclude: ExcludedItems = None,
    max_per: MaxPerTexts = None,
    diversity: Diversity = 0.0,
    pool: Pool = None,
    pad: Annotated[bool, typer.Option("--pad", help="Return fewer than k items to a user who has fewer left.")] = False,
    strategy: StrategyText = None,
    engine: EngineText = None,
    output: OutputFolder = None,
    rows_per_part: RowsPerPart = None,
    on_ray: OnRay = False,
    ray_address: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Recommend the next items for users or histories; they need not have been part of the training data.

    With --all-users, the histories may be more than memory holds, and the results are Parquet files in --output.

    Example: railsearch recommend runs/ml-1m/hstu-mol/model --history 1,260,1196 -k 5

    Example: railsearch recommend runs/ml-1m/hstu-mol/model --history 1,260 --max-per "genres=2:|" --diversity 0.3

    Example: railsearch recommend runs/ml-1m/hstu-mol/model --all-users --data data/ml-1m --output recommended --ray
    """
    if users is not None and data is None:
        raise InvalidInputError("--users needs their histories; add --data with the prepared data that holds them.")
    if engine is not None and index is None:
        raise InvalidInputError("--engine searches an index on disk; add --index with the index of the model's items.")
    chosen, with_engine = chosen_strategy(strategy), chosen_engine(engine)
    limits, excluded = chosen_limits(max_per), None if exclude is None else ids_of(exclude)
    runner = chosen_runner(on_ray=on_ray, address=ray_address)
    if all_users:
        if data is None or output is None or users is not None or history:
            raise InvalidInputError("--all-users needs --data and --output, and neither --users nor --history.")
        report = recommend_all(
            model,
            data,
            output,
            k,
            index=index,
            filter_viewed=not keep_viewed,
            unknown_items="ignore" if ignore_unknown else "refuse",
            cold_start=cold_start,
            strategy=chosen,
            allow=allow,
            exclude=excluded,
            max_per=limits,
            diversity=diversity,
            pool=pool,
            pad=pad,
            engine=with_engine,
            users_per_part=rows_per_part or ROWS_PER_PART,
            runner=runner,
            show_progress=False if as_json else None,
        )
        print_report(report, as_json=as_json)
        return
    flags = (("--ray", runner), ("--output", output), ("--rows-per-part", rows_per_part))
    check_no_batch(*flags, remedy="add --all-users")
    recommender = Recommender.load(model, interactions=None if data is None else read_prepared(data))
    if index is not None:
        recommender.open_index(index, engine=with_engine)
    found = recommender.recommend(
        None if users is None else ids_of(users),
        k,
        histories=[ids_of(own) for own in history] if history else None,
        filter_viewed=not keep_viewed,
        unknown_items="ignore" if ignore_unknown else "refuse",
        cold_start=cold_start,
        strategy=chosen,
        allow=allow,
        exclude=excluded,
        max_per=limits,
        diversity=diversity,
        pool=pool,
        pad=pad,
    )
    table = found.join(recommender.items, on="item", how="left", maintain_order="left")
    if as_json:
        print_json({"model": str(model), "recommendations": rows_as_json(table)})
    else:
        make_console().print(make_frame_table(table, has_box=False))
