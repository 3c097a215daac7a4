"""Times of brute-force scoring by block size: the reason for SCORING_VALUES in kernels/blocks.py.

python benchmarks/scoring_blocks.py            the ML-20M shape of the paper, items 24,186
python benchmarks/scoring_blocks.py --items 4000 --repeats 3
"""

import argparse
import statistics
import time

import torch

from railsearch import MixtureOfLogits
from railsearch.kernels import TorchKernel
from railsearch.kernels.blocks import SCORING_VALUES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=24_186)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(query_dim=256, item_dim=256, component_dim=128, seed=0).eval()
    with torch.no_grad():
        query_parts = mol.query_parts(torch.randn(options.queries, 256, generator=generator))
        item_parts = mol.item_parts(torch.randn(options.items, 256, generator=generator))

    sizes = [512, 1024, 2048, 4096, 8192, 16_384, 65_536]
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for repeat in range(options.repeats + 1):  # the first round warms up; sizes take turns, so noise hits all alike
        for size in sizes:
            started = time.perf_counter()
            TorchKernel(mol, pairs_per_block=size).top_k(query_parts, item_parts, k=100)
            if repeat:
                seconds[size].append(time.perf_counter() - started)

    print(f"8 x 4 x 128, gate 128, {options.queries} queries, {options.items} items, fp32, "
          f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")  # fmt: skip
    base = statistics.median(seconds[SCORING_VALUES // mol.values_per_pair])
    print(f"{'pairs a block':>14} {'median ms':>10} {'slowest ms':>11} {'ratio to default':>17}")
    for size in sizes:
        median = statistics.median(seconds[size])
        print(f"{size:>14} {median * 1e3:>10.0f} {max(seconds[size]) * 1e3:>11.0f} {median / base:>17.2f}")


if __name__ == "__main__":
    main()
