"""Kernels side by side in one run: the torch kernel, the native kernel, and the peak of torch's own matrix product.

    python benchmarks/kernels.py                 # shapes of the paper, batch of 32, k = 100
    python benchmarks/kernels.py --share 0.25    # a fourth of the items, for a machine in a hurry
    python benchmarks/kernels.py --threads 1     # CPU time of one thread: what else the machine does matters little
    RAILSEARCH_ISA=portable python benchmarks/kernels.py --only scan

Each figure is the median of interleaved repeats: all kernels run in turn, so that a busy machine slows all of them. The
peak is measured between them, with a square product that fits the cache.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import faiss
import torch

from railsearch import MixtureOfLogits
from railsearch.benchmark.machine import describe_machine
from railsearch.kernels import TorchKernel, native, target_ranks, torch_scan
from railsearch.kernels.native import NativeKernel
from railsearch.similarity import ItemParts, LateInteraction, QueryParts

SHAPES = {  # items, query components, item components, dim, hidden size of the gate
    "ML-20M": (24_186, 8, 4, 128, 128),
    "Books (1/8)": (84_256, 8, 8, 32, 128),
    "NQ320K (1/4)": (27_435, 4, 4, 768, 128),
}
LATE_SHAPES = [(4, 8, 384), (8, 32, 128)]  # query components, item components, dim
LATE_ITEMS = 30_000
PEAK_SIZE = 1024


def main() -> None:
    arguments = read_arguments()
    torch.manual_seed(0)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    print(describe_machine())
    print(f"native kernel: {native.chosen_isa()}, of {native.usable_isas()}; {torch.get_num_threads()} threads\n")
    if arguments.only in ("all", "brute"):
        for name in SHAPES:
            brute_force(name, arguments)
    if arguments.only in ("all", "late"):
        for shape in LATE_SHAPES:
            late_interaction(*shape, arguments)
    if arguments.only in ("all", "candidates"):
        candidates(arguments)
    if arguments.only in ("all", "scan"):
        for n in (200, 2000):
            first_stage(n, arguments)
    if arguments.only in ("all", "ranks"):
        validation(arguments)


def brute_force(name: str, arguments: argparse.Namespace) -> None:
    """Fused top k of all items."""
    mixture, queries, items = make_world(name, arguments)
    pairs = len(queries) * len(items)
    num_pairs = mixture.num_query_components * mixture.num_item_components
    operations = 2 * pairs * num_pairs * (mixture.component_dim + 2 * mixture.gate_dim)
    report(
        f"brute force, {name}: {len(items):,} items, batch {len(queries)}, k 100",
        {
            "torch": lambda: TorchKernel(mixture).top_k(queries, items, 100),
            "native": lambda: NativeKernel(mixture).top_k(queries, items, 100),
        },
        arguments.repeats,
        operations,
    )


def late_interaction(num_query: int, num_item: int, dim: int, arguments: argparse.Namespace) -> None:
    """Fused top k of all items under late interaction, for a batch and for a single query."""
    late = LateInteraction(num_query_components=num_query, num_item_components=num_item, component_dim=dim).eval()
    num_items = int(LATE_ITEMS * arguments.share)
    with torch.no_grad():
        queries = late.query_parts(torch.randn(32, num_query, dim))
        items = late.item_parts(torch.randn(num_items, num_item, dim))
    for count in (32, 1):
        own = queries[:count]
        report(
            f"late interaction, {num_query} x {num_item} x {dim}: {num_items:,} items, batch {count}, k 100",
            {
                "torch": lambda own=own: TorchKernel(late).top_k(own, items, 100),
                "native": lambda own=own: NativeKernel(late).top_k(own, items, 100),
            },
            arguments.repeats,
            2 * count * num_items * num_query * num_item * dim,
        )


def candidates(arguments: argparse.Namespace) -> None:
    """Scores of 500 candidates for each query of a batch, and of 200 for a single query."""
    mixture, queries, items = make_world("ML-20M", arguments)
    reference, kernel = TorchKernel(mixture), NativeKernel(mixture)
    for count, width in ((32, 500), (1, 200)):
        own = queries[:count]
        rows = torch.randint(len(items), (count, width)).sort(dim=1).values
        num_pairs = mixture.num_query_components * mixture.num_item_components
        operations = 2 * rows.numel() * num_pairs * (mixture.component_dim + 2 * mixture.gate_dim)
        report(
            f"score_candidates, ML-20M: {count} queries, {width} candidates each",
            {
                "torch": lambda own=own, rows=rows: reference.score_candidates(own, items, rows),
                "native": lambda own=own, rows=rows: kernel.score_candidates(own, items, rows),
            },
            3 * arguments.repeats,
            operations,
        )


def first_stage(n: int, arguments: argparse.Namespace) -> None:
    """The n best rows by dot product."""
    table = torch.nn.functional.normalize(torch.randn(int(674_044 * arguments.share), 32), dim=1)
    vectors = torch.randn(32, 1, 32)
    faiss.omp_set_num_threads(torch.get_num_threads())
    flat = faiss.IndexFlatIP(32)
    flat.add(table.numpy())
    int8, half = native.Int8Table(table), table.half()
    int8_half = native.Int8Table(half)
    for own, copy in ((table, int8), (half, int8_half)):
        found, right = copy(vectors, own, n, None), native.scan(vectors, own, n, None)
        assert torch.equal(found.rows, right.rows)
        assert torch.equal(found.scores, right.scores)
    report(
        f"scan: {len(table):,} rows of 32, 32 vectors, n {n}",
        {
            "FAISS flat": lambda: flat.search(vectors[:, 0].numpy(), n),
            "torch mm + topk": lambda: (vectors[:, 0] @ table.T).topk(n, dim=1),
            "torch": lambda: torch_scan.scan(vectors, table, n, None),
            "native": lambda: native.scan(vectors, table, n, None),
            "native int8": lambda: int8(vectors, table, n, None),
            "native fp16": lambda: native.scan(vectors, half, n, None),
            "fp16 + int8": lambda: int8_half(vectors, half, n, None),
        },
        arguments.repeats,
        2 * vectors.numel() * len(table),
    )
    one = vectors[:1]
    report(
        f"scan: {len(table):,} rows of 32, one vector, n {n}",
        {
            "torch": lambda: torch_scan.scan(one, table, n, None),
            "native": lambda: native.scan(one, table, n, None),
            "native int8": lambda: int8(one, table, n, None),
        },
        3 * arguments.repeats,
        2 * one.numel() * len(table),
    )
    report(
        f"int8 copy of {len(table):,} rows of 32",
        {"torch": lambda: table.to(torch.float16).to(torch.float32), "native int8": lambda: native.Int8Table(table)},
        arguments.repeats,
        table.numel(),
    )


def validation(arguments: argparse.Namespace) -> None:
    """Ranks of the held-out items of all users of MovieLens-1M under a mixture of 8 x 4 components."""
    mixture = MixtureOfLogits(query_dim=50, item_dim=50, component_dim=50, seed=0).eval()
    num_users, num_items = int(6_040 * arguments.share), 3_883
    with torch.no_grad():
        queries, items = mixture.query_parts(torch.randn(num_users, 50)), mixture.item_parts(torch.randn(num_items, 50))
    targets = torch.randint(num_items, (num_users,))
    num_pairs = mixture.num_query_components * mixture.num_item_components
    report(
        f"ranks for validation: {num_users:,} users, {num_items:,} items",
        {
            name: lambda kernel=kernel: target_ranks(mixture, queries, items, targets, kernel=kernel)
            for name, kernel in (("torch", TorchKernel(mixture)), ("native", NativeKernel(mixture)))
        },
        arguments.repeats,
        2 * num_users * num_items * num_pairs * (mixture.component_dim + 2 * mixture.gate_dim),
    )


def report(title: str, work: dict[str, Callable[[], object]], repeats: int, operations: int) -> None:
    left, right = torch.randn(PEAK_SIZE, PEAK_SIZE), torch.randn(PEAK_SIZE, PEAK_SIZE)
    seconds: dict[str, list[float]] = {"peak": []} | {name: [] for name in work}
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    for repeat in range(repeats + 1):
        for name, run in ({"peak": lambda: left @ right} | work).items():
            started = now()
            run()
            if repeat:  # the first is for warming up
                seconds[name].append(now() - started)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    peak = 2 * PEAK_SIZE**3 / median["peak"]
    print(f"{title}; matmul peak {peak / 1e9:.0f} GFLOP/s")
    for name in work:
        rate = operations / median[name]
        print(
            f"    {name:<16} {1000 * median[name]:9.2f} ms   {1000 * min(seconds[name]):9.2f} best   "
            f"{rate / 1e9:6.1f} GFLOP/s   {100 * rate / peak:4.0f} % of peak   "
            f"{median['torch'] / median[name]:5.2f} x torch"
        )


def make_world(name: str, arguments: argparse.Namespace) -> tuple[MixtureOfLogits, QueryParts, ItemParts]:
    num_items, num_query, num_item, dim, hidden = SHAPES[name]
    mixture = MixtureOfLogits(
        query_dim=64, item_dim=64, num_query_components=num_query, num_item_components=num_item, component_dim=dim,
        gate_dim=hidden, seed=0,
    ).eval()  # fmt: skip
    with torch.no_grad():
        queries = mixture.query_parts(torch.randn(32, 64))
        return mixture, queries, mixture.item_parts(torch.randn(int(num_items * arguments.share), 64))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the items")
    parser.add_argument("--threads", type=int, help="by default as many as torch uses; 1 measures CPU time")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["all", "brute", "late", "candidates", "scan", "ranks"], default="all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
