"""Whole searches through `Index.search`, torch kernel and native kernel side by side in one run.

    python benchmarks/whole_search.py                       # ML-20M shape, batch of 32, k = 100
    python benchmarks/whole_search.py --share 0.2           # a fifth of the items, for a machine in a hurry
    python benchmarks/whole_search.py --threads 1           # CPU time of one thread: what else runs matters little
    python benchmarks/whole_search.py --only one            # one of: batch, one, overhead

Both kernels search the same index folder and run in turn, so that a busy machine slows both. Gates and embeddings are
random: nearly every item has a component above the k-th score, which is the worst case of TwoPass and Adaptive. Stages
are those of `railsearch.kernels.stages`; "rest" is the time outside of them, such as certificates and checks.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from railsearch import Average, BruteForce, Combined, Index, MixtureOfLogits, PerComponent, TwoPass
from railsearch.benchmark.machine import describe_machine, watch_others
from railsearch.index import Adaptive, Strategy, format_strategy
from railsearch.kernels import Stage, native, stopwatch

SHAPES = {  # items, query components, item components, dim, hidden size of the gate
    "ML-20M": (24_186, 8, 4, 128, 128),
    "Books (1/8)": (84_256, 8, 8, 32, 128),
}
KERNELS = ("torch", "native")
DIM = 64
STRATEGIES = (
    BruteForce(),
    Average(200),
    Average(500),
    PerComponent(5),
    Combined(5, 200),
    TwoPass(),
    Adaptive(),
)
ONE_QUERY = (BruteForce(), Average(200), Combined(5, 200), TwoPass())


def main() -> None:
    arguments = read_arguments()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    print(describe_machine())
    print(f"native kernel: {native.chosen_isa()}, of {native.usable_isas()}; {torch.get_num_threads()} threads")
    with watch_others() as busy_cores, tempfile.TemporaryDirectory() as folder:
        if arguments.only in ("all", "batch", "one"):
            indexes = make_indexes(arguments.shape, arguments.share, Path(folder) / "index")
            queries = torch.randn(256, DIM, generator=torch.Generator().manual_seed(1))  # (256, D)
            print(f"\n{arguments.shape} shape, {len(indexes['native']):,} items, k = {arguments.k}")
            if arguments.only in ("all", "batch"):
                batches(indexes, queries[:32], arguments)
            if arguments.only in ("all", "one"):
                single_queries(indexes, queries, arguments)
        if arguments.only in ("all", "overhead"):
            overhead(arguments)
    print(f"\nOther processes kept {busy_cores() or 0.0:.1f} cores busy meanwhile.")


def batches(indexes: dict[str, Index], queries: Tensor, arguments: argparse.Namespace) -> None:
    """Print the time of a batch by strategy, and the stages of the native kernel."""
    strategies = [each for each in STRATEGIES if arguments.strategy in format_strategy(each)]
    kernels = [each for each in KERNELS if arguments.kernel in ("both", each)]
    median: dict[tuple[str, Strategy], float] = {}
    shares: dict[Strategy, list[float]] = {}
    for strategy in dict.fromkeys((BruteForce(), *strategies)):
        works = {kernel: searching(indexes[kernel], queries, strategy, arguments.k) for kernel in kernels}
        for kernel, seconds in interleaved(works, arguments.repeats).items():
            median[kernel, strategy] = statistics.median(seconds)
        shares[strategy] = profile(works[kernels[-1]])
    base = median[kernels[0], BruteForce()]
    print(f"\n| batch of {len(queries)} | {' | '.join(f'{kernel}, ms' for kernel in kernels)} | against torch |"
          f" {kernels[0]} brute force / this | native brute force / this | {' | '.join(Stage)} | rest |")  # fmt: skip
    print("|---" * (len(kernels) + len(Stage) + 5) + "|")
    for strategy in strategies:
        own = [median[kernel, strategy] for kernel in kernels]
        print(
            f"| {format_strategy(strategy)} | {' | '.join(f'{1e3 * each:.2f}' for each in own)} | "
            f"{own[0] / own[-1]:.2f} x | {base / own[-1]:.2f} x | "
            f"{median[kernels[-1], BruteForce()] / own[-1]:.2f} x | "
            f"{' | '.join(f'{share:.0%}' for share in shares[strategy])} |"
        )


def single_queries(indexes: dict[str, Index], queries: Tensor, arguments: argparse.Namespace) -> None:
    """Print the latency of searches of one query each."""
    strategies = [each for each in ONE_QUERY if arguments.strategy in format_strategy(each)]
    kernels = [each for each in KERNELS if arguments.kernel in ("both", each)]
    print("\n| one query | " + " | ".join(f"{kernel} p50, ms | p99" for kernel in kernels) + " | against torch |")
    print("|---" * (2 * len(kernels) + 2) + "|")
    for strategy in strategies:
        repeats = arguments.repeats * (4 if strategy in (BruteForce(), TwoPass()) else 40)
        seconds: dict[str, list[float]] = {kernel: [] for kernel in kernels}
        for kernel in kernels:
            for query in range(10):
                searching(indexes[kernel], queries[query : query + 1], strategy, arguments.k)()
        for repeat in range(repeats):
            query = queries[repeat % len(queries)][None]  # (1, D)
            for kernel in kernels:
                seconds[kernel].append(timed_call(searching(indexes[kernel], query, strategy, arguments.k)))
        figures = [
            f"{1e3 * statistics.median(seconds[kernel]):.2f} | {1e3 * quantile(seconds[kernel], 0.99):.2f}"
            for kernel in kernels
        ]
        ratio = statistics.median(seconds[kernels[0]]) / statistics.median(seconds[kernels[-1]])
        print(f"| {format_strategy(strategy)} | {' | '.join(figures)} | {ratio:.2f} x |")


def overhead(arguments: argparse.Namespace) -> None:
    """Print what `Index.search` costs around the kernel: one query, 1,000 items, brute force."""
    similarity = make_similarity("ML-20M")
    index = Index.build(similarity, torch.randn(1000, DIM, generator=torch.Generator().manual_seed(0)))
    query = torch.randn(1, DIM, generator=torch.Generator().manual_seed(1))  # (1, D)
    own = index.similarity
    with torch.no_grad():
        parts, items = own.query_parts(query), own.item_parts(torch.randn(1000, DIM))
    kernel = native.NativeKernel(own)  # type: ignore[arg-type]  # a mixture
    works: dict[str, Callable[[], object]] = {
        "search of an embedding": lambda: index.search(query, k=100),
        "search of ready query parts": lambda: index.search(parts, k=100),
        "kernel alone": lambda: kernel.top_k(parts, items, 100),
    }
    seconds = {name: statistics.median(own) for name, own in interleaved(works, 60 * arguments.repeats).items()}
    print("\n| 1,000 items, one query, BruteForce | us | around the kernel, us |")
    print("|---|---|---|")
    for name, median in seconds.items():
        print(f"| {name} | {1e6 * median:.0f} | {1e6 * (median - seconds['kernel alone']):.0f} |")


def searching(index: Index, queries: Tensor, strategy: Strategy, k: int) -> Callable[[], object]:
    """Return the search as a function."""
    return lambda: index.search(queries, k=k, strategy=strategy)


def profile(work: Callable[[], object]) -> list[float]:
    """Return the share of each stage in the time of a search, and what is left."""
    started = time.perf_counter()
    with stopwatch() as seconds:
        work()
    total = time.perf_counter() - started
    return [*(seconds[stage] / total for stage in Stage), 1 - sum(seconds.values()) / total]


def interleaved(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Run all works in turn; return the seconds of each run but the first."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name, work in works.items():
            own = timed_call(work)
            if repeat:
                seconds[name].append(own)
    return seconds


def timed_call(work: Callable[[], object]) -> float:
    started = clock()
    work()
    return clock() - started


def clock() -> float:
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def quantile(seconds: Sequence[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def make_indexes(shape: str, share: float, path: Path) -> dict[str, Index]:
    """Build an index folder and open it once with each kernel."""
    items = torch.randn(int(SHAPES[shape][0] * share), DIM, generator=torch.Generator().manual_seed(0))
    Index.build(make_similarity(shape), items, path=path).close()
    return {kernel: Index.open(path, kernel=kernel) for kernel in KERNELS}


def make_similarity(shape: str) -> MixtureOfLogits:
    _, num_query, num_item, dim, hidden = SHAPES[shape]
    return MixtureOfLogits(
        query_dim=DIM, item_dim=DIM, num_query_components=num_query, num_item_components=num_item, component_dim=dim,
        gate_dim=hidden, seed=0,
    ).eval()  # fmt: skip


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="ML-20M")
    parser.add_argument("--share", type=float, default=1.0, help="share of the items")
    parser.add_argument("--threads", type=int, help="by default as many as torch uses; 1 measures CPU time")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--only", choices=["all", "batch", "one", "overhead"], default="all")
    parser.add_argument("--kernel", choices=["both", *KERNELS], default="both")
    parser.add_argument("--strategy", default="", help="only strategies whose name contains this text")
    return parser.parse_args()


if __name__ == "__main__":
    main()
