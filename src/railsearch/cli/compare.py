"""`railsearch compare`: does a Mixture of Logits pay on this data? Figures with intervals, costs, and a verdict."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from railsearch.benchmark import check_plot
from railsearch.cli.options import Json
from railsearch.cli.terminal import lines_of, make_console, print_json
from railsearch.comparison import Comparison
from railsearch.comparison import compare as run_comparison
from railsearch.data import read_pair_rows, read_queries, read_question_files
from railsearch.foundation.errors import InvalidInputError
from railsearch.recipes import Recipe, TextRecipe, read_interactions_of, read_recipe

WAYS = ("embeddings", "a recipe", "texts")


def compare(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A recipe of a recommender, as in `railsearch train`; with --data.", show_default=False),
    ] = None,
    *,
    queries: Annotated[
        Path | None,
        typer.Option(help="Query embeddings: a .npy array or a Parquet or Arrow table.", show_default=False),
    ] = None,
    items: Annotated[
        Path | None, typer.Option(help="Item embeddings, in the same formats.", show_default=False)
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Query rows and the rows of items that are right for them: .csv, .npy, Parquet or Arrow; rows count "
            "from 0.",
            show_default=False,
        ),
    ] = None,
    validation_pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs that pick the epoch, instead of a tenth of the queries.", show_default=False),
    ] = None,
    test_pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs that are measured, instead of a fifth of the queries.", show_default=False),
    ] = None,
    dot_product: Annotated[
        bool, typer.Option("--dot-product", help="Your system is a dot product of the embeddings, not their cosine.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Interactions for a recipe, written by data prepare; replaces the recipe's data.folder.",
            show_default=False,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting of the recipe: section.setting=value. May be repeated."),
    ] = None,
    passages: Annotated[
        Path | None,
        typer.Option(
            help="Passages as JSON lines or a table (.csv, .parquet, .arrow): id, text, and optionally title.",
            show_default=False,
        ),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            help="Questions as JSON lines or a table: question, passage_ids (the right ones), and optionally split.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A folder with a Hugging Face model that encodes texts, or package:NAME of an installed package.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Training runs of each model.", min=1, show_default="3, and 1 for a recipe"),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="The most passes over the training data.", min=1, show_default="20, or the recipe's"),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(help="Components of each side of the mixture.", min=1, show_default="4, or the recipe's"),
    ] = None,
    split_seed: Annotated[int, typer.Option(help="Seed of the choice of test and validation queries.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints and models; run the command again to resume.", show_default=False),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report in Markdown to this file.", show_default=False)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot the figures into this .png file.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Compare simple systems with a Mixture of Logits on your data, and print which one to use.

    All models are trained with equal budgets and measured on the same test queries: HR, NDCG and MRR with intervals
    of 95 %, the time of training and of a search, and memory per item. A difference is claimed only if its interval
    excludes zero.

    There are three ways in: your own embeddings (frozen cosine, tuned cosine, mixture); a recipe and interactions
    (popularity, ItemKNN, cosine, mixture); passages, questions and a language model (BM25, then frozen embeddings of
    that model as in the first way).

    Example: railsearch compare --queries q.npy --items x.npy --pairs pairs.csv

    Example: railsearch compare recipe.toml --data data/shop

    Example: railsearch compare --passages docs.jsonl --questions questions.jsonl --model models/minilm
    """
    _check_outputs(report, plot)
    way = check_ways(
        {"--queries": queries, "--items": items, "--pairs": pairs},
        {"a recipe": recipe},
        {"--passages": passages, "--questions": questions, "--model": model},
    )
    refuse_others(
        way,
        {"--validation-pairs": validation_pairs, "--test-pairs": test_pairs, "--dot-product": dot_product or None},
        {"--data": data, "--set": changes},
        {},
    )
    show_progress = False if as_json else None
    chosen = None if recipe is None else _read_recipe(recipe, changes or [])
    found = run_comparison(
        query_embeddings=None if queries is None else read_queries(queries),
        item_embeddings=None if items is None else read_queries(items),
        pairs=None if pairs is None else read_pair_rows(pairs),
        validation_pairs=None if validation_pairs is None else read_pair_rows(validation_pairs),
        test_pairs=None if test_pairs is None else read_pair_rows(test_pairs),
        dot_product=dot_product,
        interactions=None if chosen is None else read_interactions_of(chosen, data),
        recipe=chosen,
        questions=None
        if passages is None or questions is None
        else read_question_files(passages, questions, show_progress=show_progress),
        model=model,
        seeds=seeds,
        epochs=epochs,
        num_components=components,
        split_seed=split_seed,
        folder=out,
        show_progress=show_progress,
    )
    _tell(found, report=report, plot=plot, as_json=as_json)


def check_ways(*ways: Mapping[str, object]) -> int:
    """Return the number of the way in whose flags are given; refuse none, several, and incomplete ones."""
    given = [[flag for flag, value in way.items() if value is not None] for way in ways]
    chosen = [number for number, flags in enumerate(given) if flags]
    if not chosen:
        raise InvalidInputError(f"there is nothing to compare; give {'; or '.join(map(_listed, ways))}.")
    if len(chosen) > 1:
        first, second, *_ = chosen
        raise InvalidInputError(
            f"{given[first][0]} and {given[second][0]} do not go together; give {'; or '.join(map(_listed, ways))}."
        )
    way = ways[chosen[0]]
    missing = [flag for flag in way if flag not in given[chosen[0]]]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise InvalidInputError(f"{_listed(missing)} {verb} missing; give {_listed(way)}.")
    return chosen[0]


def refuse_others(way: int, *options: Mapping[str, object]) -> None:
    """Refuse flags that belong to another way in than the chosen one."""
    for number, flags in enumerate(options):
        for flag, value in flags.items():
            if value is not None and number != way:
                raise InvalidInputError(f"{flag} belongs to {WAYS[number]}, not to {WAYS[way]}; omit it.")


def _read_recipe(recipe: Path, changes: list[str]) -> Recipe:
    found = read_recipe(recipe, changes)
    if isinstance(found, TextRecipe):
        raise InvalidInputError(
            f"{recipe} is the recipe of a text retriever; to compare on texts, give --passages, --questions and "
            "--model."
        )
    return found


def _listed(flags: Iterable[str]) -> str:
    *others, last = flags
    return f"{', '.join(others)} and {last}" if others else last


def _tell(found: Comparison, *, report: Path | None, plot: Path | None, as_json: bool) -> None:
    if report is not None:
        report.write_text(found.to_markdown(), encoding="utf-8")
    if plot is not None:
        found.plot(plot)
    if as_json:
        print_json(found.to_dict())
    else:
        make_console().print(lines_of(str(found)))


def _check_outputs(report: Path | None, plot: Path | None) -> None:
    """Check that the files can be written, before the work."""
    if plot is not None:
        check_plot(plot)
    if report is None:
        return
    if report.is_dir() or not report.parent.is_dir():
        raise InvalidInputError(f"--report is {report}, which cannot be a file; give a file in an existing folder.")
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        raise InvalidInputError(f"--report is {report}, which cannot be written; give another file.")
