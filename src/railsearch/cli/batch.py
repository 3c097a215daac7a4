"""Batch jobs on the command line: their report, and flags that only they take."""

from pathlib import Path

from railsearch.cli.terminal import make_console, make_summary_table, print_json
from railsearch.distributed.batch import JobReport, Runner, build_passages_index
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Engine, Index, Precision, ScanPrecision


def check_no_batch(*given: tuple[str, object], remedy: str = "add --output") -> None:
    """Refuse flags of a batch job, with their values, in a command that prints its answer."""
    for flag, value in given:
        if value is not None:
            raise InvalidInputError(f"{flag} is for batch jobs, which write files; {remedy}, or omit it.")


def print_report(report: JobReport, *, as_json: bool) -> None:
    """Print a summary of a job that is complete."""
    if as_json:
        print_json(report.to_dict())
        return
    earlier = report.num_parts - report.num_computed
    rows = [
        ("output", report.output),
        ("parts", f"{report.num_parts:,}" + (f", {earlier:,} of them from an earlier run" if earlier else "")),
        ("rows written", f"{report.num_rows:,}"),
        ("seconds", f"{report.seconds:.1f}"),
    ]
    make_console(wraps=True).print(make_summary_table(rows))


def encode_in_parts(
    index: Path,
    model: Path,
    passages: Path,
    *,
    parts: Path | None,
    precision: Precision,
    scan: ScanPrecision,
    engine: Engine | None,
    runner: Runner | None,
    show_progress: bool | None,
) -> tuple[Index, str]:
    """Build an index of passages that are encoded in parts; return it, and how many this run has encoded."""
    built, report = build_passages_index(
        model, passages, index, parts=parts, precision=precision, scan=scan, runner=runner, show_progress=show_progress
    )
    if engine is not None:
        Index.open(index, engine=engine).prepare_engine()
    rate = f"{report.num_rows:,} passages in this run, {report.num_rows / report.seconds:,.0f} per second"
    return built, f"{rate}; {report.num_computed:,} of {report.num_parts:,} parts"
