"""How building, opening and searching grow with the number of items: 8 x 4 components of 64, in fp16, from a stream.

python benchmarks/scale.py --folder /data/scale                                  24,000, 100,000 and 1,000,000 items
python benchmarks/scale.py --folder /data/scale --items 10000000 --keep          10,000,000; needs 9 GB of disk
python benchmarks/scale.py --folder /data/scale --items 10000000 --only search   searches an index that was kept
python benchmarks/scale.py --folder /data/scale --tables scale.png               tables and plot of all measured sizes

Every phase runs in a process of its own, and adds one line of JSON to `results.jsonl` in the folder. A phase that has
a line is not run again, so a run that was stopped goes on; `--again` repeats it. Memory is anonymous memory (RssAnon),
without the page cache. "cold" means that the files of the index were evicted from the page cache first. CPU time is
that of all threads; with OMP_NUM_THREADS=1, it shows what a search takes on a machine that others use too.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch import Average, Flat, Index, ItemBatch, MixtureOfLogits, PerComponent
from railsearch.benchmark.machine import describe_machine, watch_others
from railsearch.index import Strategy

NUM_QUERY_COMPONENTS, NUM_ITEM_COMPONENTS, COMPONENT_DIM = 8, 4, 64
ROWS_PER_BATCH = 32_768
NUM_TOPICS = 1000
PHASES = ("build", "open", "search", "int8")
K = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where indexes and results are kept")
    parser.add_argument("--items", type=int, nargs="+", default=[24_000, 100_000, 1_000_000])
    parser.add_argument("--only", choices=PHASES, nargs="+", default=PHASES, help="phases to run; by default all")
    parser.add_argument("--queries", type=int, default=200, help="single queries of each measurement")
    parser.add_argument("--keep", action="store_true", help="keep the index folders")
    parser.add_argument("--again", action="store_true", help="run phases again that have a result")
    parser.add_argument("--tables", type=Path, help="only print tables of all results, and write this plot")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tables is not None:
        results = read_results(options.folder)
        print_tables(results)
        plot(results, options.tables)
        return
    if options.phase is not None:
        print(json.dumps(run_phase(options.phase, options.items[0], options.folder, options.queries)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for num_items in options.items:
        for phase in options.only:
            if options.again or phase not in read_results(options.folder).get(num_items, {}):
                start_phase(phase, num_items, options.folder, options.queries)
        if not options.keep:
            shutil.rmtree(index_path(options.folder, num_items), ignore_errors=True)


def index_path(folder: Path, num_items: int) -> Path:
    """Return the path of an index, such as 10m.index for 10,000,000 items."""
    for unit, name in ((10**6, "m"), (10**3, "k")):
        if num_items % unit == 0:
            return folder / f"{num_items // unit}{name}.index"
    return folder / f"{num_items}.index"


def start_phase(phase: str, num_items: int, folder: Path, num_queries: int) -> None:
    """Run a phase in its own process, and add its line to the results."""
    if phase != "build" and not index_path(folder, num_items).exists():
        sys.exit(f"{index_path(folder, num_items)} does not exist; run the phase build with --keep first.")
    command = [sys.executable, __file__, "--folder", folder, "--items", num_items, "--queries", num_queries]
    command += ["--phase", phase]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603
    line = done.stdout.strip().splitlines()[-1]
    with (folder / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line, flush=True)


def read_results(folder: Path) -> dict[int, dict[str, dict[str, object]]]:
    """Return the last line of each number of items and phase."""
    results: dict[int, dict[str, dict[str, object]]] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / "results.jsonl").read_text().splitlines():
            found = json.loads(line)
            results.setdefault(found["items"], {})[found["phase"]] = found
    return dict(sorted(results.items()))


def run_phase(phase: str, num_items: int, folder: Path, num_queries: int) -> dict[str, object]:
    """Do one phase, and return its figures."""
    path = index_path(folder, num_items)
    measure = {"build": measure_build, "open": measure_open, "search": measure_search, "int8": measure_int8}[phase]
    with watch_others() as other_cores:
        figures = measure(path, num_items, num_queries)
    return {
        "items": num_items, "phase": phase, **figures, "other_cores": round(other_cores() or 0.0, 2),
        "machine": str(describe_machine()), "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }  # fmt: skip


def make_similarity() -> MixtureOfLogits:
    """Return a mixture of ready components with a random gate."""
    return MixtureOfLogits(
        query_projection="ready", item_projection="ready", num_query_components=NUM_QUERY_COMPONENTS,
        num_item_components=NUM_ITEM_COMPONENTS, component_dim=COMPONENT_DIM, seed=0,
    ).eval()  # fmt: skip


def make_components(count: int, num_components: int, seed: int) -> Tensor:
    """Return components (count, num_components, d) around topics, as real ones lie."""
    generator = torch.Generator().manual_seed(seed)
    topics = torch.randn(NUM_TOPICS, COMPONENT_DIM, generator=torch.Generator().manual_seed(0))
    chosen = torch.randint(NUM_TOPICS, (count, num_components), generator=generator)
    return F.normalize(topics[chosen] + torch.randn(*chosen.shape, COMPONENT_DIM, generator=generator), dim=-1)


def stream(num_items: int, seconds: list[float]) -> Iterator[ItemBatch]:
    """Yield batches of items, each from its own seed; add up the seconds that making them takes."""
    for number, first in enumerate(range(0, num_items, ROWS_PER_BATCH)):
        started = time.perf_counter()
        items = make_components(min(ROWS_PER_BATCH, num_items - first), NUM_ITEM_COMPONENTS, seed=1 + number)
        seconds[0] += time.perf_counter() - started
        yield ItemBatch(items)


def measure_build(path: Path, num_items: int, num_queries: int) -> dict[str, object]:
    shutil.rmtree(path, ignore_errors=True)
    making = [0.0]
    with watch_memory() as peak:
        started, cpu = time.perf_counter(), time.process_time()
        index = Index.build(
            make_similarity(), stream(num_items, making), path=path, precision="fp16", show_progress=False
        )
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {
        "seconds": seconds, "cpu_seconds": cpu, "of_which_making_items": making[0],
        "items_per_second": num_items / (seconds - making[0]),
        "peak_bytes": peak(), "folder_bytes": num_bytes, "segments": index.num_segments,
    }  # fmt: skip


def measure_open(path: Path, num_items: int, num_queries: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    query = make_components(1, NUM_QUERY_COMPONENTS, seed=0)
    for verify in ("full", "lazy"):
        for state in ("cold", "warm"):
            if state == "cold":
                evict(path)
            with watch_memory() as peak:
                index, seconds = timed(lambda verify=verify: Index.open(path, verify=verify))
                _, first = timed(lambda index=index: index.search(query, K, Average(500)))
                _, second = timed(lambda index=index: index.search(query, K, Average(500)))
            figures |= {
                f"{verify}_{state}_seconds": seconds, f"{verify}_{state}_first_search_seconds": first,
                f"{verify}_{state}_second_search_seconds": second, f"{verify}_{state}_peak_bytes": peak(),
            }  # fmt: skip
            index.close()
    return figures


def measure_search(path: Path, num_items: int, num_queries: int) -> dict[str, object]:
    with watch_memory() as peak:
        index = Index.open(path, verify="background")
        wait_for_checks()
        figures = measure_strategy(index, Average(500), num_queries)
        figures |= measure_strategy(index, PerComponent(5), max(5, min(num_queries, 20_000_000 // num_items)))
    return figures | {"peak_bytes": peak()}


def measure_int8(path: Path, num_items: int, num_queries: int) -> dict[str, object]:
    with watch_memory() as peak:
        index = Index.open(path, verify="background", engine=Flat("int8"))
        wait_for_checks()
        _, preparing = timed(index.prepare_engine)
        figures = measure_strategy(index, Average(500), num_queries)
    return figures | {"prepare_seconds": preparing, "peak_bytes": peak()}


def measure_strategy(index: Index, strategy: Strategy, num_queries: int) -> dict[str, object]:
    """Measure single queries and batches of 32, after one of each."""
    queries = make_components(num_queries, NUM_QUERY_COMPONENTS, seed=0)
    batches = make_components(32 * 5, NUM_QUERY_COMPONENTS, seed=0).split(32)
    index.search(queries[:1], K, strategy)
    name, figures = type(strategy).__name__, {}
    for kind, parts in (("", queries.split(1)), ("batch_of_32_", batches)):
        wall, cpu = [], []
        for part in parts:
            started = time.process_time()
            wall.append(timed(lambda part=part: index.search(part, K, strategy))[1])
            cpu.append(time.process_time() - started)
        figures |= {
            f"{name}_{kind}p50_ms": 1e3 * quantile(wall, 0.5), f"{name}_{kind}p99_ms": 1e3 * quantile(wall, 0.99),
            f"{name}_{kind}cpu_ms": 1e3 * quantile(cpu, 0.5),
        }  # fmt: skip
    return figures | {f"{name}_queries": num_queries}


def timed(work: Callable[[], object]) -> tuple[object, float]:
    """Return a result, and the seconds that it took."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def quantile(values: list[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def evict(path: Path) -> None:
    """Remove the files of an index from the page cache."""
    for file in path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def wait_for_checks() -> None:
    """Wait until the background has checked everything."""
    for thread in threading.enumerate():
        if thread.name == "railsearch-checks":
            thread.join()


@contextlib.contextmanager
def watch_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most anonymous memory of this process during the block, every 20 ms."""
    most, is_over = [0], threading.Event()

    def watch() -> None:
        while True:
            status = Path("/proc/self/status").read_text()
            most[0] = max(most[0], 1024 * int(status.partition("RssAnon:")[2].split()[0]))
            if is_over.wait(0.02):
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: most[0]
    finally:
        is_over.set()
        thread.join()


def print_tables(results: dict[int, dict[str, dict[str, object]]]) -> None:
    """Print the tables of benchmarks/results/scale.md."""

    def row(*cells: object) -> None:
        print("| " + " | ".join(map(str, cells)) + " |")

    def value(found: dict[str, dict[str, object]], phase: str, name: str, scale: float, form: str) -> str:
        number = found.get(phase, {}).get(name)
        return format(float(str(number)) * scale, form) if number is not None else "-"

    tables = {
        "Building": [
            ("items per second", "build", "items_per_second", 1, ",.0f"), ("seconds", "build", "seconds", 1, ",.1f"),
            ("CPU seconds", "build", "cpu_seconds", 1, ",.1f"),
            ("peak memory, MiB", "build", "peak_bytes", 2**-20, ",.0f"),
            ("folder, MB", "build", "folder_bytes", 1e-6, ",.0f"), ("segments", "build", "segments", 1, ".0f"),
        ],
        "Opening, and the first search by Average(500)": [
            (f"{verify}, {state}: {what}", "open", f"{verify}_{state}_{name}seconds", 1e3, ",.0f")
            for verify in ("full", "lazy") for state in ("cold", "warm")
            for what, name in (("open, ms", ""), ("first search, ms", "first_search_"))
        ],
        "Searching": [
            (f"{shown}{kind}, {what}", phase, f"{strategy}_{name}", 1, ",.1f")
            for shown, phase, strategy in (
                ("Average(500)", "search", "Average"), ("int8", "int8", "Average"),
                ("PerComponent(5)", "search", "PerComponent"),
            )
            for kind, names in (
                ("", (("p50 ms", "p50_ms"), ("p99 ms", "p99_ms"), ("CPU ms", "cpu_ms"))),
                (" x 32", (("ms", "batch_of_32_p50_ms"), ("CPU ms", "batch_of_32_cpu_ms"))),
            )
            for what, name in names
        ],
        "Memory of searches beside the page cache": [
            ("peak memory, MiB", "search", "peak_bytes", 2**-20, ",.0f"),
            ("with int8, MiB", "int8", "peak_bytes", 2**-20, ",.0f"),
        ],
        "Cores that other processes kept busy": [
            (phase, phase, "other_cores", 1, ".2f") for phase in PHASES
        ],
    }  # fmt: skip
    for title, columns in tables.items():
        print(f"\n### {title}\n")
        row("items", *(name for name, *_ in columns))
        row(*["---:"] * (1 + len(columns)))
        for num_items, found in results.items():
            row(f"{num_items:,}", *(value(found, *rest) for _, *rest in columns))


def plot(results: dict[int, dict[str, dict[str, object]]], path: Path) -> None:
    """Plot times against the number of items."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    lines = [
        ("build, s", "build", "seconds", 1.0), ("open, full, cold, s", "open", "full_cold_seconds", 1.0),
        ("open, lazy, cold, s", "open", "lazy_cold_seconds", 1.0),
        ("Average(500), one query, s", "search", "Average_p50_ms", 1e-3),
        ("the same, int8, s", "int8", "Average_p50_ms", 1e-3),
        ("PerComponent(5), one query, s", "search", "PerComponent_p50_ms", 1e-3),
        ("peak memory of the build, GiB", "build", "peak_bytes", 2.0**-30),
        ("folder, GB", "build", "folder_bytes", 1e-9),
    ]  # fmt: skip
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    for label, phase, name, scale in lines:
        points = [(n, float(str(found[phase][name])) * scale) for n, found in results.items() if phase in found]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("items, 8 x 4 components of 64 in fp16")
    figure.legend(loc="outside right upper")
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    main()
