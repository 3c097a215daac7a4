"""The commands; each is a few lines around one library call."""

import dataclasses
from typing import Annotated

import typer
from rich.console import Console

import railsearch
from railsearch.cli import data, engine, index, items, recipes
from railsearch.cli.bench import bench
from railsearch.cli.compare import compare
from railsearch.cli.doctor import Diagnosis, diagnose
from railsearch.cli.evaluate import evaluate
from railsearch.cli.export import export
from railsearch.cli.options import Json
from railsearch.cli.recommend import recommend
from railsearch.cli.search import search
from railsearch.cli.serve import serve
from railsearch.cli.similar import similar
from railsearch.cli.story import tell_demo
from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.cli.train import train
from railsearch.demo import run_demo
from railsearch.foundation.bf16 import ISA_VARIABLE, ISA_WITHOUT_AMX, Bf16Matmul
from railsearch.foundation.extras import install_advice

app = typer.Typer(
    name="railsearch",
    help="Retrieval with learned similarities: train a similarity that is more than a dot product, index a "
    "corpus with it, and search the index. Each answer comes with a certificate of how good it is.",
    epilog="Start with `railsearch demo`. If something does not work, run `railsearch doctor`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app)
app.add_typer(index.app)
app.add_typer(items.app)
app.add_typer(engine.app)
app.add_typer(recipes.app)
app.command()(search)
app.command()(bench)
app.command()(train)
app.command()(evaluate)
app.command()(export)
app.command()(compare)
app.command()(recommend)
app.command()(similar)
app.command()(serve)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(railsearch.__version__)
        raise typer.Exit


@app.command()
def doctor(as_json: Json = False) -> None:
    """Report versions, device, threads, and whether a bf16 matrix product is safe on this CPU.

    Some virtual machines announce AMX but cannot run it; a bf16 product then kills the process. The test runs in a
    separate process, so this command only reports the result.

    Example: railsearch doctor --json
    """
    diagnosis = diagnose()
    if as_json:
        print_json(dataclasses.asdict(diagnosis))
    else:
        make_console().print(make_summary_table(_findings(diagnosis)))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the synthetic data and of training.", min=0)] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the data. Fewer are faster and less accurate.", min=1)] = 10,
    as_json: Json = False,
) -> None:
    """Show in less than two minutes why a dot product is not enough, and what a mixture adds.

    The demo creates synthetic data whose true preferences are known, trains a cosine similarity and a Mixture of
    Logits on the same embeddings, compares them, indexes the items, answers a few queries and shows the gate weights.

    Example: railsearch demo --seed 1 --epochs 4
    """
    chapters = run_demo(seed=seed, epochs=epochs, show_progress=False if as_json else None)
    if as_json:
        print_json({"chapters": [dataclasses.asdict(chapter) for chapter in chapters]})
    else:
        tell_demo(chapters, Console())


def _findings(diagnosis: Diagnosis) -> list[tuple[str, object]]:
    advice = {
        Bf16Matmul.SAFE: "safe",
        Bf16Matmul.SAFE_WITHOUT_AMX: f"fails or kills the process; safe with {ISA_VARIABLE}={ISA_WITHOUT_AMX}",
        Bf16Matmul.UNSAFE: "fails or kills the process; use fp32",
    }
    return [
        *diagnosis.versions.items(),
        ("platform", diagnosis.platform),
        ("device", diagnosis.device),
        ("threads", diagnosis.num_threads),
        ("cpu capability", diagnosis.cpu_capability),
        ("native kernels", diagnosis.native_kernels),
        ("bf16 matmul", advice[diagnosis.bf16_matmul]),
        *(
            (f"extra {extra}", found or f"not installed; {install_advice(extra)}")
            for extra, found in diagnosis.extras.items()
        ),
    ]
