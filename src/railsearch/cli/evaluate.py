"""`railsearch evaluate`: the quality of a trained model, over all test data and by segment."""

import itertools
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from railsearch.cli.options import Json
from railsearch.cli.ranked_lists import (
    Depth,
    Overwrite,
    QrelsFile,
    RankedLists,
    TrecFile,
    print_files,
    print_measures,
)
from railsearch.cli.recommend import ModelFolder
from railsearch.cli.terminal import make_console, print_json, visible
from railsearch.evaluation import Analysis, Interval
from railsearch.evaluation.analysis import DEFAULT_K, DEFAULT_POPULAR
from railsearch.foundation.errors import InvalidInputError
from railsearch.loading import a_kind, load
from railsearch.recommender import Recommender
from railsearch.text_retriever import TextRetriever


def evaluate(
    model: ModelFolder,
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Data with test items: prepared data for a recommender, data in the recipe's layout for a text model.",
            show_default=False,
        ),
    ],
    segments: Annotated[
        bool,
        typer.Option(
            "--segments",
            help="Also by history length, item popularity and new users, with coverage, novelty and popularity share.",
        ),
    ] = False,
    k: Annotated[
        int | None,
        typer.Option("-k", "--k", help="With --segments: length of the lists. (default 10)", show_default=False, min=1),
    ] = None,
    popular: Annotated[
        float | None,
        typer.Option(
            help="With --segments: share of all items that counts as popular. (default 0.1)", show_default=False
        ),
    ] = None,
    trec: TrecFile = None,
    qrels: QrelsFile = None,
    depth: Depth = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Measure a trained model on held-out test data, and print the protocol.

    A recommender ranks each user's last item among all items and reports HR, NDCG and MRR. A text model ranks the
    right passages of each test question among all passages and reports the same for the best-placed one, and nDCG@10,
    R@100, RR@10 and AP@100 over all right passages with their grades, as BEIR and trec_eval do. --data may be a
    folder of BEIR (corpus.jsonl, queries.jsonl, qrels/test.tsv), whatever the layout of the recipe.

    With --segments, a recommender also reports them for each segment of users, and how much of the catalogue it
    recommends: coverage, Gini index, novelty, popularity share and diversity. Popularity counts training events only.

    Example: railsearch evaluate runs/ml-1m/hstu-mol/model --data data/ml-1m

    Example: railsearch evaluate runs/ml-1m/hstu-mol/model --data data/ml-1m --segments -k 20 --json

    Example: railsearch evaluate runs/scifact/model --data data/scifact --trec run.txt --qrels qrels.txt
    """
    if not segments and (k is not None or popular is not None):
        raise InvalidInputError(f"{'--popular' if k is None else '--k'} needs --segments; add it.")
    lists = RankedLists(trec, qrels, depth, overwrite)
    lists.check(segments=segments)
    loaded = load(model)
    if segments:
        if not isinstance(loaded, Recommender):
            raise InvalidInputError(f"{model} holds {a_kind(loaded)}; --segments needs a recommender.")
        analysis = loaded.analyze(
            data, k=DEFAULT_K if k is None else k, popular=DEFAULT_POPULAR if popular is None else popular
        )
        print_analysis(model, analysis, as_json=as_json)
        return
    if isinstance(loaded, TextRetriever):
        texts = loaded.test_data(data)
        lists.check_ids(texts)
        evaluation = loaded.evaluate(texts, depth=lists.kept(is_text=True), show_progress=False if as_json else None)
    elif isinstance(loaded, Recommender):
        evaluation = loaded.evaluate(data, depth=lists.kept(is_text=False))
    else:
        raise InvalidInputError(f"{model} holds {a_kind(loaded)}; give a recommender or a text retriever.")
    lists.write(evaluation)
    is_text = isinstance(loaded, TextRetriever)
    measures = evaluation.run.measure() if is_text and evaluation.run is not None else {}
    if as_json:
        print_json({"model": str(model), **evaluation.to_dict(), **({"measures": measures} if measures else {})})
        return
    console = make_console()
    print_metrics(evaluation.metrics, evaluation.protocol, console, intervals=evaluation.intervals)
    print_measures(measures, console)
    print_files(lists.files, console)


def print_analysis(model: Path, analysis: Analysis, *, as_json: bool) -> None:
    """Print the metrics of all users, those beyond accuracy, and a table of segments."""
    if as_json:
        print_json({"model": str(model), **analysis.to_dict()})
        return
    console, evaluation = make_console(), analysis.evaluation
    print_metrics(evaluation.metrics, evaluation.protocol, console, intervals=evaluation.intervals)
    beyond = Table("beyond accuracy", "lists of " + str(analysis.k), box=None)
    for name, value in analysis.beyond.items():
        beyond.add_row(name, f"{value:.4f}")
    console.print(beyond)
    for by, segments in itertools.groupby(analysis.segments, key=lambda segment: segment.by):
        own = list(segments)
        table = Table(by, "users", *own[0].metrics, box=None)
        for segment in own:
            margins = {name: interval.margin for name, interval in segment.intervals.items()}
            figures = [f"{value:.4f} +- {margins[name]:.4f}" for name, value in segment.metrics.items()]
            table.add_row(segment.name, f"{segment.num_queries:,}", *figures)
        console.print(table)
    console.print(f"Popular are the {100 * analysis.popular:g} % of all items with the most training events.")


def print_metrics(
    metrics: dict[str, float], protocol: str, console: Console, *, intervals: dict[str, Interval] | None = None
) -> None:
    """Print test metrics, always together with the protocol that they were measured by."""
    table = Table("metric", "test", *([] if intervals is None else ["95 % interval"]), box=None)
    for name, value in metrics.items():
        bounds = [] if intervals is None else [f"{intervals[name].low:.4f} to {intervals[name].high:.4f}"]
        table.add_row(name, f"{value:.4f}", *bounds)
    console.print(table)
    console.print(f"protocol: {visible(protocol)}")
