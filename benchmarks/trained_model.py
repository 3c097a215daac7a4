"""Search strategies on a trained recommender and real held-out items, as the paper's Table 3. Markdown.

python benchmarks/trained_model.py runs/ml-1m/hstu-mol/model --data data/ml-1m

Hit rates are those of the test items (the last of each user, items of the history excluded), as a share of brute
force's own. Times are of batches of 32 queries; strategies take turns in one run.
"""

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

from railsearch import BruteForce, Index, MixtureOfLogits
from railsearch.data import leave_last_out, read_prepared
from railsearch.evaluation import run_benchmark
from railsearch.evaluation.machine import describe_machine
from railsearch.index import Strategy, TwoPass, format_strategy, parse_strategies
from railsearch.recommender import Recommender
from railsearch.similarity import ItemParts, QueryParts
from railsearch.training.sequential import histories_between

DEPTHS = (1, 5, 10, 50, 100, 200)
DEFAULT = (
    "TwoPass PerComponent(5) PerComponent(50) Average(200) Average(500) Average(1000) Combined(5,200) Combined(50,500)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="what railsearch data prepare wrote")
    parser.add_argument("--strategies", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()

    interactions = read_prepared(options.data)
    recommender = Recommender.load(options.model, interactions=interactions)
    split = leave_last_out(interactions, has_validation=recommender.recipe.split.has_validation)
    model = recommender.model
    users, ends = split.test.users, split.test.history_ends
    starts = interactions.offsets[users]  # (B,)
    histories = histories_between(interactions, starts, ends, max_length=model.encoder.max_length)
    query_parts = model.query_parts(histories, users)
    seen = [interactions.items[first:end] for first, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    index = Index.build(model.similarity, model.encoder.embed_items().detach(), show_progress=False)
    strategies = (BruteForce(), *parse_strategies(options.strategies))

    print(f"{describe_machine()}; {len(index)} items, {len(users)} test users; {split.protocol}\n")
    report = run_benchmark(
        index,
        query_parts[: 32 * options.repeats],
        k=DEPTHS[-1],
        strategies=strategies[1:],
        batch_sizes=(32,),
        repeats=options.repeats,
    )
    latency = {row.name: row.latencies[0].median_seconds for row in report.rows}
    depths = " | ".join(f"HR@{depth}" for depth in DEPTHS)
    print(f"| strategy | {depths} | items scored | exact | ms, batch of 32 | against brute force |")
    print("|---" * (len(DEPTHS) + 5) + "|")
    base: list[float] = []
    for strategy in strategies:
        hits, share_scored, share_exact = measure(index, query_parts, seen, split.test.items, strategy)
        base = base or hits
        name = format_strategy(strategy)
        figures = " | ".join(f"{hit / most:.3f}" for hit, most in zip(hits, base, strict=True))
        times = latency[name]
        print(
            f"| {name} | {figures} | {share_scored:.1%} | {share_exact:.1%} | {1e3 * times:.1f} | "
            f"{latency['BruteForce'] / times:.2f} x |"
        )
    print(f"\nBrute force itself: {', '.join(f'HR@{d} {h:.4f}' for d, h in zip(DEPTHS, base, strict=True))}.")
    _, surviving, _ = measure(index, query_parts, seen, split.test.items, TwoPass(), k=100)
    print(f"\nItems that TwoPass scores for k = 100, of {len(index)}: {surviving:.1%}.")
    if isinstance(model.similarity, MixtureOfLogits):
        describe_gate(model.similarity, query_parts, model.item_parts()[split.test.items[:, None]])


def measure(
    index: Index,
    query_parts: QueryParts,
    seen: list[Tensor],
    targets: Tensor,
    strategy: Strategy,
    *,
    k: int = DEPTHS[-1],
) -> tuple[list[float], float, float]:
    """Hit rates at all depths, the share of items that were scored, and the share of answers certified exact."""
    places, scored, exact = [], 0.0, 0.0
    for first in range(0, len(query_parts), 512):
        rows = slice(first, first + 512)
        found = index.search(query_parts[rows], k, strategy, exclude=seen[rows])
        is_target = found.ids == targets[rows, None]  # (b, K)
        places.append(torch.where(is_target.any(dim=1), is_target.int().argmax(dim=1), k))
        scored += float(found.num_scored.sum())
        exact += float(found.is_exact.sum())
    ranks = torch.cat(places)  # (B,)
    total = len(ranks)
    return [float((ranks < depth).double().mean()) for depth in DEPTHS], scored / total / len(index), exact / total


@torch.no_grad()
def describe_gate(similarity: MixtureOfLogits, query_parts: QueryParts, target_parts: ItemParts) -> None:
    """Print how evenly the gate weighs the pairs of users and their test items."""
    weights = similarity.compare_candidates(query_parts, target_parts).gate_weights[:, 0]  # (B, P)
    mean = weights.mean(dim=0)  # (P,)
    own, overall = entropy(weights).mean(), entropy(mean)
    print(
        f"\nGate over {len(mean)} pairs, of users and test items: entropy of one pair's weights {own:.2f}, of the "
        f"mean weights {overall:.2f}, at most {math.log(len(mean)):.2f}; the heaviest pair has "
        f"{weights.amax(dim=1).mean():.1%} on average."
    )


def entropy(weights: Tensor) -> Tensor:
    return -(weights * weights.clamp_min(1e-30).log()).sum(dim=-1)


if __name__ == "__main__":
    main()
