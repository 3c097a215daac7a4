"""The commands: each is a few lines around one library call."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import railsearch
from railsearch.cli import data, index
from railsearch.cli.bench import bench
from railsearch.cli.doctor import ISA_VARIABLE, ISA_WITHOUT_AMX, Bf16Matmul, Diagnosis, diagnose
from railsearch.cli.options import Json
from railsearch.cli.recommend import evaluate, recommend
from railsearch.cli.search import search
from railsearch.cli.story import tell_demo
from railsearch.cli.train import train
from railsearch.demo import run_demo
from railsearch.foundation.errors import RailsearchError

app = typer.Typer(
    name="railsearch",
    help="Retrieval with learned similarities: train a similarity that is more than a dot product, index a "
    "corpus under it, and search it with a certificate of how good each answer is.",
    epilog="Start with `railsearch demo`. If anything looks odd, `railsearch doctor`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app)
app.add_typer(index.app)
app.command()(search)
app.command()(bench)
app.command()(train)
app.command()(evaluate)
app.command()(recommend)


def main() -> None:
    """Run the command line; an error that the user can mend is one line, not a trace."""
    try:
        app()
    except RailsearchError as error:
        Console(stderr=True, markup=False, soft_wrap=True).print(f"error: {error}", highlight=False)
        raise SystemExit(2) from error


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(railsearch.__version__)
        raise typer.Exit


@app.command()
def doctor(as_json: Json = False) -> None:
    """Report versions, device, threads, and whether a bf16 matrix product is safe on this CPU.

    Some virtual machines announce AMX and cannot run it: there a bf16 product kills the process. The test runs
    in a process of its own, so that this command only reports it.

    Example: railsearch doctor --json
    """
    diagnosis = diagnose()
    if as_json:
        print(json.dumps(dataclasses.asdict(diagnosis), indent=2))
    else:
        Console().print(_doctor_table(diagnosis))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the world and of training.", min=0)] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the data; fewer is faster and worse.", min=1)] = 10,
    as_json: Json = False,
) -> None:
    """See in under two minutes why a dot product is not enough, and what a mixture does about it.

    Makes a synthetic world whose truth is known, trains a cosine and a Mixture of Logits on the same
    embeddings, compares them, indexes the items, answers a few queries and shows what the gate weighed.

    Example: railsearch demo --seed 1 --epochs 4
    """
    chapters = run_demo(seed=seed, epochs=epochs, show_progress=False if as_json else None)
    if as_json:
        print(json.dumps({"chapters": [dataclasses.asdict(chapter) for chapter in chapters]}, indent=2))
    else:
        tell_demo(chapters, Console())


def _doctor_table(diagnosis: Diagnosis) -> Table:
    advice = {
        Bf16Matmul.SAFE: "safe",
        Bf16Matmul.SAFE_WITHOUT_AMX: f"fails or kills the process; safe with {ISA_VARIABLE}={ISA_WITHOUT_AMX}",
        Bf16Matmul.UNSAFE: "fails or kills the process; stay with fp32",
    }
    table = Table(show_header=False, box=None)
    for name, version in diagnosis.versions.items():
        table.add_row(name, version)
    table.add_row("platform", diagnosis.platform)
    table.add_row("device", diagnosis.device)
    table.add_row("threads", str(diagnosis.num_threads))
    table.add_row("cpu capability", diagnosis.cpu_capability)
    table.add_row("bf16 matmul", advice[diagnosis.bf16_matmul])
    for extra, found in diagnosis.extras.items():
        table.add_row(f"extra {extra}", found or f"not installed: pip install 'railsearch\\[{extra}]'")
    return table
