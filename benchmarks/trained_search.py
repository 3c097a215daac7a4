"""Exact search and candidates in rounds on a trained recommender: every table of results/strategies.md. Markdown.

python benchmarks/trained_search.py runs/video/sasrec-mol/model --data data/video

Queries are the test histories of a sample of users, in batches of 32. Times are CPU seconds of one thread; strategies
take turns in one run. Recall is the share of an answer that belongs to the true top k.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from searching.gate_bounds import surviving
from searching.refined import Graph, Linear, nearest_items, side_by_side
from strategy_table import entropy

from railsearch import Adaptive, Average, BruteForce, Index, MixtureOfLogits, PerComponent, TwoPass, Weighted
from railsearch.benchmark.machine import describe_machine
from railsearch.data import leave_last_out, read_prepared
from railsearch.foundation.results import SearchResult
from railsearch.index import Strategy, format_strategy
from railsearch.models import histories_between
from railsearch.recommender import Recommender
from railsearch.similarity import QueryParts

BATCH = 32
NUM_NEIGHBORS = 16
TIE = 1e-5
"""An item within this relative distance of the k-th score ties with it and is not a miss, as in `Index.tune`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder that railsearch data prepare wrote")
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=10, help="batches that are timed")
    parser.add_argument("--only", choices=("exact", "candidates"))
    options = parser.parse_args()

    torch.set_num_threads(1)
    index, query_parts = load(options.model, options.data, options.queries)
    print(f"{describe_machine()}, kernel {index.describe()['kernel']}; {index.similarity!r}, {len(index):,} items, ")
    print(f"{len(query_parts)} queries, k = {options.k}")
    truth = index.search(query_parts, options.k, BruteForce())
    show_gate(index, query_parts, truth)
    if options.only != "candidates":
        show_exact(index, query_parts, truth, repeats=options.repeats)
    if options.only != "exact":
        show_candidates(index, query_parts, truth, repeats=options.repeats)


def load(folder: Path, data: Path, num_queries: int) -> tuple[Index, QueryParts]:
    """Return the index of a recommender's items, and the query side of a sample of test users."""
    interactions = read_prepared(data)
    recommender = Recommender.load(folder, interactions=interactions)
    model = recommender.model
    split = leave_last_out(interactions, has_validation=recommender.recipe.split.has_validation)
    sample = torch.randperm(len(split.test.users), generator=torch.Generator().manual_seed(0))[:num_queries]
    users, ends = split.test.users[sample], split.test.history_ends[sample]
    histories = histories_between(interactions, interactions.offsets[users], ends, max_length=model.encoder.max_length)
    index = Index.build(model.similarity, model.encoder.embed_items().detach(), show_progress=False)
    return index, model.query_parts(histories, users)


@torch.no_grad()
def show_gate(index: Index, query_parts: QueryParts, truth: SearchResult) -> None:
    """Print how evenly the gate weighs the component pairs of the items that are found."""
    similarity, corpus = index.similarity, index._corpus
    assert isinstance(similarity, MixtureOfLogits)
    rows = truth.ids[:, ::10]  # (B, K / 10)
    weights = similarity.compare_candidates(query_parts, corpus[rows]).gate_weights.flatten(0, 1)  # (B * K / 10, P)
    print(
        f"\nGate over {weights.shape[1]} component pairs, for queries and their top {truth.ids.shape[1]}: the heaviest "
        f"pair has {weights.amax(dim=1).mean():.1%} on average; entropy {entropy(weights).mean():.2f} of at most "
        f"{math.log(weights.shape[1]):.2f}."
    )


@torch.no_grad()
def show_exact(index: Index, query_parts: QueryParts, truth: SearchResult, *, repeats: int) -> None:
    """Print what exact searches cost, what each bound leaves, and what a free bound would cost."""
    k, strategies = truth.ids.shape[1], (BruteForce(), TwoPass(), Adaptive())
    seconds = take_turns([searching(index, strategy, k) for strategy in strategies], query_parts, repeats)
    print("\n| exact search | items scored | CPU ms, batch of 32 | against brute force |\n|---|---|---|---|")
    for strategy, own in zip(strategies, seconds, strict=True):
        scored = index.search(query_parts, k, strategy).num_scored.double().mean() / len(index)
        print(f"| {format_strategy(strategy)} | {scored:.1%} | {1e3 * own:.2f} | {own / seconds[0]:.2f} |")

    shares: dict[str, list[float]] = {}
    parts = index._corpus.pieces[0]
    assert isinstance(index.similarity, MixtureOfLogits)
    for first in range(0, min(len(query_parts), 2 * BATCH), 4):
        some = slice(first, first + 4)
        for name, left in surviving(index.similarity, query_parts[some], parts, truth.kth_score[some]):
            shares.setdefault(name, []).append(left)
    left = {name: statistics.mean(own) for name, own in shares.items()}
    scans = [raised(index, query_parts, each, k) for each in left.values()]
    seconds = take_turns([searching(index, BruteForce(), k), *scans], query_parts, repeats)
    print("\n| bound, at the true k-th score | items left | CPU ms of a scan if the bound itself were free | "
          "against brute force |\n|---|---|---|---|")  # fmt: skip
    for (name, own), time_taken in zip(left.items(), seconds[1:], strict=True):
        print(f"| {name} | {own:.1%} | {1e3 * time_taken:.2f} | {time_taken / seconds[0]:.2f} |")


def raised(index: Index, query_parts: QueryParts, left: float, k: int) -> Callable[[QueryParts], object]:
    """Return a scan that scores a given share of the items of each query, the best by component.

    It computes all component scores, and the gate of that share, as a scan with a tighter bound would.
    """
    corpus = index._corpus
    parts = corpus.pieces[0]
    thresholds: dict[int, torch.Tensor] = {}
    count = max(1, round(left * len(parts)))

    def scan(queries: QueryParts) -> object:
        key = queries.components.data_ptr()
        if key not in thresholds:
            thresholds[key] = corpus.kernel.bounds(queries, parts).topk(count, dim=1).values[:, -1].contiguous()  # (B,)
        return corpus.kernel.top_k_above(queries, parts, k, thresholds[key])

    for _, queries in batches(query_parts):
        scan(queries)
    return scan


@torch.no_grad()
def show_candidates(index: Index, query_parts: QueryParts, truth: SearchResult, *, repeats: int) -> None:
    """Print recall, items scored and time of approximate strategies."""
    k, corpus = truth.ids.shape[1], index._corpus
    began = time.process_time()
    neighbors = nearest_items(corpus, NUM_NEIGHBORS)
    print(f"\n{NUM_NEIGHBORS} neighbors of every item: {time.process_time() - began:.1f} CPU s.")
    table = side_by_side(corpus)
    strategies: list[Strategy] = [BruteForce()]
    strategies += [Average(n) for n in (200, 500, 1000, 4000)]
    strategies += [PerComponent(n) for n in (50, 100, 200, 220, 400)]
    strategies += [Weighted(n) for n in (150, 200, 300, 500, 700, 1000)]
    strategies += [Graph(n, width, rounds, neighbors) for n in (200, 500) for width, rounds in WALKS]
    strategies += [Linear(*steps, table) for steps in STEPS]
    seconds = take_turns([searching(index, strategy, k) for strategy in strategies], query_parts, repeats)
    print("\n| strategy | recall | items scored | CPU ms, batch of 32 |\n|---|---|---|---|")
    for strategy, own in zip(strategies, seconds, strict=True):
        found = index.search(query_parts, k, strategy)
        print(
            f"| {format_strategy(strategy) if not isinstance(strategy, Graph | Linear) else strategy} | "
            f"{recall(found, truth):.4f} | {found.num_scored.double().mean():,.0f} | {1e3 * own:.2f} |"
        )


WALKS = ((50, 4), (100, 1), (100, 16))
"""Width and rounds of a walk over the graph."""
STEPS = (
    (32, 16, 1, 200, 1),
    (32, 16, 1, 200, 2),
    (32, 16, 1, 400, 2),
    (100, 10, 1, 200, 1),
    (100, 100, 1, 200, 3),
    (100, 4, 4, 400, 2),
)
"""Seeds, width, groups, step and rounds of linearised searches."""


def recall(found: SearchResult, truth: SearchResult) -> float:
    least = truth.kth_score - TIE * truth.kth_score.abs().clamp_min(1.0)  # (B,)
    return float((found.scores >= least[:, None]).double().mean())


def searching(index: Index, strategy: Strategy, k: int) -> Callable[[QueryParts], object]:
    return lambda queries: index.search(queries, k, strategy)


def batches(query_parts: QueryParts) -> Iterator[tuple[int, QueryParts]]:
    for place, first in enumerate(range(0, len(query_parts) - BATCH + 1, BATCH)):
        yield place, query_parts[first : first + BATCH]


def take_turns(
    searches: Sequence[Callable[[QueryParts], object]], query_parts: QueryParts, repeats: int
) -> list[float]:
    """Return the median CPU seconds of each search of a batch, after one warm-up round."""
    seconds: list[list[float]] = [[] for _ in searches]
    for place, queries in list(batches(query_parts))[: repeats + 1]:
        for search, own in zip(searches, seconds, strict=True):
            began = time.process_time()
            search(queries)
            if place:
                own.append(time.process_time() - began)
    return [statistics.median(own) for own in seconds]


if __name__ == "__main__":
    main()
