"""`railsearch bench`: hit rate and latency of each strategy, in the form of the paper's Table 3."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from railsearch.benchmark import (
    BenchmarkReport,
    BenchmarkRow,
    ScalingReport,
    benchmark_shape,
    check_plot,
    plot_recall_latency,
    run_benchmark,
    scale_shape,
)
from railsearch.benchmark.run import DEFAULT_STRATEGIES
from railsearch.cli.options import EngineText, Json, chosen_engine
from railsearch.cli.terminal import print_json, visible
from railsearch.data import read_queries
from railsearch.data.synthetic.shapes import DEFAULT_SHARPNESS
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Flat, Index, parse_strategies

BOLD_FROM = 0.99
"""Hit rates that the paper's Table 3 prints in bold."""
WIDTH_IN_A_PIPE = 140
NOISE_FROM = 0.1
"""Number of cores that other work may keep busy before a measurement is called noisy."""


def bench(
    workload: Annotated[
        str,
        typer.Argument(
            help="ml-20m, books or nq320k, the workloads of the paper's Table 3; or an index folder, with --queries.",
            show_default=False,
        ),
    ],
    *,
    items: Annotated[
        int | None, typer.Option(help="Number of items, instead of the workload's own number.", min=1)
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Query embeddings for an index folder: a .npy array or a Parquet or Arrow table.", show_default=False
        ),
    ] = None,
    num_queries: Annotated[int, typer.Option(help="Number of queries of a workload; at least 32.", min=1)] = 64,
    k: Annotated[int, typer.Option("-k", "--k", help="Number of items that each search returns.", min=1)] = 100,
    repeats: Annotated[int, typer.Option(help="Number of times that each search is timed.", min=1)] = 10,
    strategies: Annotated[
        str | None,
        typer.Option(help="Strategies to measure besides brute force, such as 'Average(500) Combined(5,200) TwoPass'."),
    ] = None,
    sharpness: Annotated[
        float,
        typer.Option(
            help="How closely the gate follows the best component pairs; at 0 the score is their average.", min=0.0
        ),
    ] = DEFAULT_SHARPNESS,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic data.", min=0)] = 0,
    naive: Annotated[bool, typer.Option(help="Also time brute force as in research code.")] = True,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Time one strategy, by default Average(500), on corpora of growing size.")
    ] = False,
    engine: EngineText = None,
    plot: Annotated[Path | None, typer.Option(help="Plot hit rate against latency into this .png file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure hit rate and latency of each search strategy, together with brute force in the same run.

    The corpus is synthetic. It has the sizes of one of the paper's workloads, components that lie around shared
    topics, and a gate that follows the best component pairs. Times depend on the machine; compare them as ratios.

    HR@K is the share of brute force's best K items that a strategy also returns among its best K. Ties do not count
    as misses.

    Example: railsearch bench ml-20m --plot recall-latency.png

    Example: railsearch bench books --items 50000 --repeats 3 --strategies "Average(2000) Combined(5,200)"

    Example: railsearch bench books --scaling

    Example: railsearch bench movies.index --queries users.npy --k 10
    """
    chosen = DEFAULT_STRATEGIES if strategies is None else parse_strategies(strategies)
    if plot is not None:
        check_plot(plot)
    first_stage = chosen_engine(engine)
    show_progress = False if as_json else None
    report: BenchmarkReport | ScalingReport
    if queries is not None:
        if scaling or items is not None:
            raise InvalidInputError("--scaling and --items belong to workloads; omit them for an index folder.")
        embeddings = read_queries(queries)
        report = run_benchmark(
            Index.open(workload, engine=first_stage),
            embeddings,
            k=k,
            strategies=chosen,
            batch_sizes=[size for size in (32, 1) if size <= len(embeddings)],
            repeats=repeats,
            show_progress=show_progress,
        )
    elif Path(workload).is_dir():
        raise InvalidInputError(f"{workload} is a folder; add --queries with its queries, such as users.npy.")
    elif scaling:
        if plot is not None or engine is not None or (strategies is not None and len(chosen) > 1):
            raise InvalidInputError(
                "--scaling times one strategy with a plain scan; omit --plot and --engine, and give one strategy."
            )
        report = scale_shape(
            workload,
            num_items=items,
            sharpness=sharpness,
            seed=seed,
            k=k,
            strategy=None if strategies is None else chosen[0],
            repeats=repeats,
            show_progress=show_progress,
        )
    else:
        report = benchmark_shape(
            workload,
            num_items=items,
            num_queries=num_queries,
            sharpness=sharpness,
            seed=seed,
            k=k,
            strategies=chosen,
            engine=first_stage,
            repeats=repeats,
            has_naive=naive,
            show_progress=show_progress,
        )
    if isinstance(report, BenchmarkReport) and plot is not None:
        plot_recall_latency(report, plot)
    if as_json:
        settings = {} if queries is not None else {"sharpness": sharpness, "seed": seed}
        engine_key = Flat().key if first_stage is None else first_stage.key
        print_json({"workload": workload, "engine": engine_key, **settings, **report.to_dict()})
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_IN_A_PIPE)
    if isinstance(report, ScalingReport):
        tell_scaling(report, console)
    else:
        settings_text = "" if queries is not None else f", sharpness {sharpness}, seed {seed}"
        engine_text = "" if first_stage is None else f", engine {first_stage.key}"
        console.print(f"{visible(workload)}{settings_text}{visible(engine_text)}", markup=False)
        tell_benchmark(report, console)


def tell_benchmark(report: BenchmarkReport, console: Console) -> None:
    """Print the machine, hit rates and latencies, and the time of each stage."""
    console.print(
        f"{report.num_items:,} items, {report.num_query_components} x {report.num_item_components} components of "
        f"{report.component_dim}, {report.dtype}; {report.num_queries} queries, k {report.k}, "
        f"{report.repeats} repeats\n{report.machine}, kernel {report.kernel}"
    )
    console.print(_quality_table(report))
    console.print(_stage_table(report))
    _warn_of_noise(report.busy_elsewhere, console)


def tell_scaling(report: ScalingReport, console: Console) -> None:
    """Print how the time of the scan and of the rest grows with the corpus."""
    console.print(
        f"{report.strategy}, batch of {report.batch_size}, k {report.k}, {report.repeats} repeats\n"
        f"{report.machine}, kernel {report.kernel}"
    )
    table = Table(title=f"{report.strategy} on a growing corpus, median ms", title_justify="left")
    for column in ("items", "complete search", "scan of the corpus", "scoring and selection", "scan, ns per item"):
        table.add_column(column, justify="right")
    for row in report.rows:
        table.add_row(
            f"{row.num_items:,}",
            *(_milliseconds(seconds) for seconds in (row.median_seconds, row.scan_seconds, row.rest_seconds)),
            f"{row.scan_seconds / row.num_items * 1e9:.0f}",
        )
    console.print(table)
    items, scan, rest = report.growth
    console.print(f"{items:.1f} x the items: {scan:.1f} x the scan, {rest:.2f} x the rest.")
    _warn_of_noise(report.busy_elsewhere, console)


def _quality_table(report: BenchmarkReport) -> Table:
    table = Table(title="HR relative to brute force; median and p95 latency of a batch in ms", title_justify="left")
    table.add_column("strategy", no_wrap=True)
    for depth in report.rows[0].hit_rates:
        table.add_column(f"HR@{depth}", justify="right")
    for latency in report.rows[0].latencies:
        for column in (f"batch {latency.batch_size}", "p95", "speed-up"):
            table.add_column(column, justify="right")
    for row in report.rows:
        rates = (f"[bold]{rate:.2f}[/bold]" if rate >= BOLD_FROM else f"{rate:.2f}" for rate in row.hit_rates.values())
        times = []
        for latency in row.latencies:
            times += [
                _milliseconds(latency.median_seconds),
                _milliseconds(latency.p95_seconds),
                f"{latency.speed_up:.{1 if latency.speed_up < 100 else 0}f} x",
            ]
        table.add_row(row.name, *rates, *times)
    return table


def _stage_table(report: BenchmarkReport) -> Table:
    batch_size = report.rows[0].latencies[0].batch_size
    title = f"Certificates, and where the time of a batch of {batch_size} goes (median ms)"
    table = Table(title=title, title_justify="left")
    table.add_column("strategy", no_wrap=True)
    stages = [name.replace("_", " ") for name in report.rows[0].stage_seconds]
    for column in ("items scored", "mean gap", "exact", *stages, "peak memory, MiB"):
        table.add_column(column, justify="right")
    for row in report.rows:
        table.add_row(
            row.name,
            f"{row.num_scored:,.0f}",
            f"{row.mean_gap:.2f}",
            f"{row.share_exact:.0%}",
            *(_milliseconds(seconds) for seconds in row.stage_seconds.values()),
            _mebibytes(row),
        )
    return table


def _warn_of_noise(busy_elsewhere: float | None, console: Console) -> None:
    if busy_elsewhere is not None and busy_elsewhere >= NOISE_FROM:
        console.print(
            f"The machine was not quiet: other work kept {busy_elsewhere:.1f} cores busy. Latencies are too high and "
            "ratios are unreliable; run the benchmark again."
        )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.{0 if seconds >= 0.1 else 1}f}"


def _mebibytes(row: BenchmarkRow) -> str:
    return "unknown" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:,.0f}"
