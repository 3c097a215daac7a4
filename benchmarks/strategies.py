"""What each search strategy costs and finds, beside brute force in the same run.

python benchmarks/strategies.py                     the paper's ML-20M shape: 24,186 items, 8 x 4 components of 128
python benchmarks/strategies.py --shape books       674,044 items, 8 x 8 components of 32 (takes minutes)
python benchmarks/strategies.py --items 5000 --repeats 2

The corpus has structure, not white noise: components lie around shared topics, and a planted gate follows the best
of its pairs. Strategies take turns, so that noise hits all alike; figures are to be read as ratios within one run.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch import Adaptive, Average, BruteForce, Combined, Index, MixtureOfLogits, PerComponent, TwoPass

SHAPES = {"ml-20m": (24_186, 8, 4, 128), "books": (674_044, 8, 8, 32)}
GATE_DIM = 128
NUM_TOPICS = 200
STRATEGIES = (
    BruteForce(),
    TwoPass(),
    Adaptive(),
    Adaptive(max_gap=1.0),
    PerComponent(5),
    PerComponent(100),
    Average(500),
    Average(2000),
    Combined(5, 200),
    Combined(100, 500),
)


def make_components(num_rows: int, num_components: int, topics: Tensor, generator: torch.Generator) -> Tensor:
    """Components of each row around topics drawn at random."""
    chosen = topics[torch.randint(len(topics), (num_rows, num_components), generator=generator)]
    noise = F.normalize(torch.randn(chosen.shape, generator=generator), dim=-1)
    return F.normalize(chosen + 0.6 * noise, dim=-1)  # (rows, components, d)


def make_similarity(num_query_components: int, num_item_components: int, dim: int) -> MixtureOfLogits:
    """A mixture whose gate follows the best of its pairs."""
    mol = MixtureOfLogits(
        num_query_components=num_query_components,
        num_item_components=num_item_components,
        component_dim=dim,
        query_projection="ready",
        item_projection="ready",
        gate_inputs=["pair"],
        gate_dim=GATE_DIM,
    ).eval()
    num_pairs = num_query_components * num_item_components
    with torch.no_grad():
        for parameter in mol.parameters():
            parameter.zero_()
        mol.gate.pair.hidden.weight[:num_pairs] = 0.3 * torch.eye(num_pairs)
        mol.gate.pair.output.weight[:, :num_pairs] = torch.eye(num_pairs)
    return mol


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="ml-20m")
    parser.add_argument("--items", type=int, help="fewer items than the shape has")
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    num_items, num_query_components, num_item_components, dim = SHAPES[options.shape]
    num_items = options.items or num_items
    generator = torch.Generator().manual_seed(0)
    topics = F.normalize(torch.randn(NUM_TOPICS, dim, generator=generator), dim=-1)
    similarity = make_similarity(num_query_components, num_item_components, dim)
    index = Index.build(similarity, make_components(num_items, num_item_components, topics, generator))
    queries = make_components(options.queries, num_query_components, topics, generator)

    seconds: dict[object, list[float]] = {strategy: [] for strategy in STRATEGIES}
    results = {}
    for repeat in range(options.repeats + 1):  # the first round warms up
        for strategy in STRATEGIES:
            started = time.perf_counter()
            results[strategy] = index.search(queries, options.k, strategy)
            if repeat:
                seconds[strategy].append(time.perf_counter() - started)

    print(f"{num_items} items, {num_query_components} x {num_item_components} x {dim}, gate {GATE_DIM}, batch "
          f"{options.queries}, k {options.k}, fp32, {torch.get_num_threads()} threads, "
          f"{torch.backends.cpu.get_cpu_capability()}")  # fmt: skip
    columns = (
        ("median ms", 10),
        ("slowest", 8),
        ("speed-up", 9),
        ("recall", 7),
        ("scored", 8),
        ("gap", 6),
        ("exact", 6),
    )
    print(f"{'strategy':>26} " + " ".join(f"{name:>{width}}" for name, width in columns))
    base = statistics.median(seconds[STRATEGIES[0]])
    true_kth = results[STRATEGIES[0]].kth_score
    for strategy in STRATEGIES:
        result = results[strategy]
        # By score, so that an item that ties with the k-th is no miss.
        recall = (result.scores >= true_kth[:, None] - 1e-4).float().mean()
        median = statistics.median(seconds[strategy])
        name = str(strategy).replace("max_gap=", "").replace(", max_scored=None", "").replace("n=", "")
        name = name.replace("per_component=", "").replace("by_average=", "")
        print(f"{name:>26} {median * 1e3:>10.0f} {max(seconds[strategy]) * 1e3:>8.0f} {base / median:>9.1f} "
              f"{float(recall):>7.3f} {float(result.num_scored.float().mean()):>8.0f} {float(result.gap.mean()):>6.2f} "
              f"{float(result.is_exact.float().mean()):>6.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
