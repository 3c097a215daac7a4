"""Times of searches over shards, against one index that holds the same items on the same cores.

python benchmarks/sharding.py                      24,186 items, 4 shards, all in one process
python benchmarks/sharding.py --ray                the same, and actors of a Ray cluster that is started on this machine
python benchmarks/sharding.py --shards 2 8 --queries 1

Two worlds: 3 x 2 components of 16, for which bounds pay, and 8 x 4 of 128 (the ML-20M shape), for which they do not.
Columns: items scored per query, median and p95 milliseconds, and both as a ratio to one index. Answers of exact
strategies are compared bit for bit. Read figures as ratios within one run.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from railsearch import Adaptive, Average, BruteForce, Index, MixtureOfLogits, PerComponent, SearchResult, TwoPass
from railsearch.distributed import ShardedIndex, shard_index

DIM, LATENT_DIM = 64, 6
STRATEGIES = (BruteForce(), TwoPass(), Adaptive(), Average(500), PerComponent(50))
EXACT = (BruteForce, TwoPass, Adaptive)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=24_186)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--shards", type=int, nargs="+", default=[4])
    parser.add_argument("--ray", action="store_true", help="measure actors of Ray, too")
    parser.add_argument("--address", help="the Ray cluster; by default one is started on this machine")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    print(f"{options.items:,} items, {options.queries} queries, k = {options.k}, {torch.get_num_threads()} threads\n")
    print("| components | where | strategy | items scored | ms | p95 ms | scored, ratio | time, ratio | same bits |")
    print("|---|---|---|---|---|---|---|---|---|")
    for world in ("3 x 2 x 16", "8 x 4 x 128"):
        with tempfile.TemporaryDirectory() as folder:
            measure(world, Path(folder), options)


def measure(world: str, folder: Path, options: argparse.Namespace) -> None:
    generator = torch.Generator().manual_seed(0)
    mixture = make_mixture(world, generator)
    basis = torch.randn(LATENT_DIM, DIM, generator=generator)
    items = torch.randn(options.items, LATENT_DIM, generator=generator) @ basis  # (N, D)
    queries = torch.randn(options.queries, LATENT_DIM, generator=generator) @ basis  # (B, D)
    whole = Index.build(mixture, items, path=folder / "index", show_progress=False)
    alone = {}
    for strategy in STRATEGIES:
        alone[strategy] = timed(lambda own=strategy: whole.search(queries, options.k, own), options.repeats)
        print_row(world, "one index", str(strategy), alone[strategy], alone[strategy])
    for num_shards in options.shards:
        path = shard_index(folder / "index", folder / f"shards-{num_shards}", num_shards, show_progress=False)
        for where, opened in places(path, options):
            with opened as index:
                for strategy in STRATEGIES:
                    found = timed(lambda own=strategy, at=index: at.search(queries, options.k, own), options.repeats)
                    print_row(world, f"{num_shards} shards, {where}", str(strategy), found, alone[strategy])


def make_mixture(world: str, generator: torch.Generator) -> MixtureOfLogits:
    if world == "8 x 4 x 128":
        return MixtureOfLogits(
            query_dim=DIM, item_dim=DIM, num_query_components=8, num_item_components=4, component_dim=128, seed=0
        ).eval()
    mixture = MixtureOfLogits(
        query_dim=DIM, item_dim=DIM, num_query_components=3, num_item_components=2, component_dim=16, temperature=0.02
    )
    mixture.reset_parameters(generator)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.4)
    return mixture.eval()


def places(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, "contextmanager[ShardedIndex]"]]:
    yield "this process", opened(path)
    if options.ray:
        yield "Ray", opened(path, workers="ray", address=options.address)


@contextmanager
def opened(path: Path, **where: str | None) -> Iterator[ShardedIndex]:
    with ShardedIndex.open(path, **where) as index:
        yield index


def timed(work: Callable[[], SearchResult], repeats: int) -> tuple[SearchResult, list[float]]:
    """Return the result and the milliseconds of each repetition, after a warm-up."""
    result = work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - started))
    return result, sorted(times)


def print_row(
    world: str,
    where: str,
    strategy: str,
    found: tuple[SearchResult, list[float]],
    alone: tuple[SearchResult, list[float]],
) -> None:
    scored, scored_alone = mean_scored(found[0].num_scored), mean_scored(alone[0].num_scored)
    middle, slow = statistics.median(found[1]), found[1][math.ceil(0.95 * len(found[1])) - 1]
    ratio = middle / statistics.median(alone[1])
    is_same = torch.equal(found[0].ids, alone[0].ids) and torch.equal(found[0].scores, alone[0].scores)
    same = ("yes" if is_same else "NO") if strategy.partition("(")[0] in {own.__name__ for own in EXACT} else ""
    print(
        f"| {world} | {where} | {strategy} | {scored:,.0f} | {middle:.1f} | {slow:.1f} | {scored / scored_alone:.2f} | "
        f"{ratio:.2f} | {same} |"
    )


def mean_scored(counts: Tensor) -> float:
    return float(counts.double().mean())


if __name__ == "__main__":
    main()
