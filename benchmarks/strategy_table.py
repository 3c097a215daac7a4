"""The table of search strategies on a trained model and held-out items, as in the paper's Table 3."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from railsearch import BruteForce, Index, MixtureOfLogits
from railsearch.benchmark import run_benchmark
from railsearch.index import Strategy, TwoPass, format_strategy
from railsearch.similarity import ItemParts, QueryParts

QUERIES_PER_SEARCH = 512


def print_strategies(
    index: Index,
    query_parts: QueryParts,
    right: Sequence[Tensor],
    strategies: Sequence[Strategy],
    *,
    depths: Sequence[int],
    repeats: int,
    exclude: Sequence[Tensor] | None = None,
) -> None:
    """Print hit rates relative to those of brute force, certificates and latencies, as Markdown.

    Args:
        index: the index to search.
        query_parts: query side of the held-out queries.
        right: ids of the right items of each query.
        strategies: strategies besides brute force, which comes first.
        depths: the k of HR@k; searches ask for the last one.
        repeats: batches of 32 that are timed.
        exclude: ids that are not returned for each query.
    """
    k = depths[-1]
    report = run_benchmark(
        index, query_parts[: 32 * repeats], k=k, strategies=tuple(strategies), batch_sizes=(32,), repeats=repeats
    )
    latency = {row.name: row.latencies[0].median_seconds for row in report.rows}
    print(f"| strategy | {' | '.join(f'HR@{depth}' for depth in depths)} | items scored | exact | ms, batch of 32 |"
          " against brute force |")  # fmt: skip
    print("|---" * (len(depths) + 5) + "|")
    base: list[float] = []
    for strategy in (BruteForce(), *strategies):
        hits, share_scored, share_exact = measure(index, query_parts, right, strategy, depths=depths, exclude=exclude)
        base = base or hits
        name = format_strategy(strategy)
        figures = " | ".join(f"{hit / most:.3f}" if most else "-" for hit, most in zip(hits, base, strict=True))
        print(
            f"| {name} | {figures} | {share_scored:.1%} | {share_exact:.1%} | {1e3 * latency[name]:.1f} | "
            f"{latency['BruteForce'] / latency[name]:.2f} x |"
        )
    print(f"\nBrute force itself: {', '.join(f'HR@{d} {h:.4f}' for d, h in zip(depths, base, strict=True))}.")
    _, surviving, _ = measure(index, query_parts, right, TwoPass(), depths=[100], exclude=exclude)
    print(f"\nItems that TwoPass scores for k = 100, of {len(index)}: {surviving:.1%}.")


def measure(
    index: Index,
    query_parts: QueryParts,
    right: Sequence[Tensor],
    strategy: Strategy,
    *,
    depths: Sequence[int],
    exclude: Sequence[Tensor] | None,
) -> tuple[list[float], float, float]:
    """Return hit rates at all depths, the share of items scored, and the share of answers certified exact."""
    places, scored, exact, k = [], 0.0, 0.0, depths[-1]
    for first in range(0, len(query_parts), QUERIES_PER_SEARCH):
        rows = slice(first, first + QUERIES_PER_SEARCH)
        found = index.search(query_parts[rows], k, strategy, exclude=None if exclude is None else exclude[rows])
        is_right = torch.stack(
            [torch.isin(ids, own) for ids, own in zip(found.ids, right[rows], strict=True)]
        )  # (b, K)
        places.append(torch.where(is_right.any(dim=1), is_right.int().argmax(dim=1), k))
        scored += float(found.num_scored.sum())
        exact += float(found.is_exact.sum())
    ranks = torch.cat(places)  # (B,)
    total = len(ranks)
    return [float((ranks < depth).double().mean()) for depth in depths], scored / total / len(index), exact / total


@torch.no_grad()
def describe_gate(similarity: MixtureOfLogits, query_parts: QueryParts, target_parts: ItemParts) -> None:
    """Print how evenly the gate weighs component pairs, for queries and their right items (one candidate each)."""
    weights = similarity.compare_candidates(query_parts, target_parts).gate_weights[:, 0]  # (B, P)
    mean = weights.mean(dim=0)  # (P,)
    print(
        f"\nGate over {len(mean)} component pairs, for queries and right items: entropy of the weights of one query "
        f"{entropy(weights).mean():.2f}, of the mean weights {entropy(mean):.2f}, at most {math.log(len(mean)):.2f}; "
        f"the heaviest pair has {weights.amax(dim=1).mean():.1%} on average."
    )


def entropy(weights: Tensor) -> Tensor:
    return -(weights * weights.clamp_min(1e-30).log()).sum(dim=-1)
